// Holds the output of commands on the host's disk to the caps of projects and of the server: the logs of commands that
// ended first go first, and their readers learn how many bytes are missing. Logs of running commands are never cut.
// Single loop; owned by the domain.
#pragma once

#include <vector>

#include "sandbox/commands/log_budget.h"
#include "sandbox/core.h"
#include "sandbox/wakeable_loop.h"

namespace sandbar::sandbox {

class LogKeeper {
 public:
  explicit LogKeeper(Core* core) : core_(core), loop_(core->ex) {}
  // Until the domain closes.
  Task<> Run();

 private:
  // The logs that earlier servers left. Logs of sessions that the database does not know count for the server only.
  Task<> CountAll();
  Task<> Trim(std::vector<LogBudget::Plan> plans);

  Core* core_;
  WakeableLoop loop_;  // there is more output than a cap allows
};

}  // namespace sandbar::sandbox
