// Work in the background that nobody waits for: removing files and records that nothing needs any more. Other types
// register their chores; one round runs all of them in that order. Single loop; owned by the domain.
#pragma once

#include <functional>
#include <vector>

#include "sandbox/core.h"
#include "sandbox/wakeable_loop.h"

namespace sandbar::sandbox {

class Housekeeper {
 public:
  explicit Housekeeper(Core* core) : core_(core), loop_(core->ex) {}

  void AddChore(std::function<Task<>()> chore) { chores_.push_back(std::move(chore)); }
  // Something may have become garbage: a round is due soon.
  void Wake() { loop_.Wake(); }
  // Rounds until the domain closes: when woken, and every minute.
  Task<> Run();

 private:
  Core* core_;
  std::vector<std::function<Task<>()>> chores_;
  WakeableLoop loop_;
};

}  // namespace sandbar::sandbox
