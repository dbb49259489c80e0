// One context of a session: its interpreter's command, and the cell that runs in it now. Owned by the session, shared
// with the tasks that watch it. Single loop.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "sandbox/code.h"
#include "sandbox/code_cell.h"

namespace sandbar::sandbox {

struct CodeContext {
  std::string id;
  CodeContextSpec spec;
  int64_t count = 0;  // cells of this interpreter
  int64_t created_at = 0, last_used_at = 0;
  std::string command;  // the interpreter's; empty: cold
  bool starting = false;
  std::shared_ptr<CodeCell> cell;  // while it runs

  bool busy() const { return starting || cell != nullptr; }
  CodeContextInfo Info() const;
  // Output of the interpreter's command; what was seen already (a replay) is skipped. True when the interpreter said
  // that it is about to end.
  bool Take(uint64_t offset, uint8_t stream, std::string_view bytes);
  void Gap(uint64_t offset, uint64_t bytes);
  uint64_t received() const { return received_; }
  // The interpreter is gone, or nobody listens to it any more.
  void Forget();
  // Makes `next` the running cell; it begins with what was printed since the last one (by threads, children, timers).
  void Begin(std::shared_ptr<CodeCell> next);

 private:
  void Channel(std::string_view bytes);

  uint64_t received_ = 0;
  std::string between_[2];  // printed while no cell ran: the end of it
  bool spoke_ = false;      // the interpreter has used its channel
  // What a shell says before: that it has no terminal. Of interest only when it dies there.
  std::string startup_;
  std::string line_;       // an unfinished one of the channel's
  bool skipping_ = false;  // inside of a line that is too long or has a hole
};

}  // namespace sandbar::sandbox
