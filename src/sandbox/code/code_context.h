// One context of a session: its interpreter's command, and the cell that runs in it now. Owned by the session, shared
// with the tasks that watch it. Single loop.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "sandbox/code/code.h"
#include "sandbox/code/code_cell.h"

namespace sandbar::sandbox {

// A context in a saved memory: the values that a session needs to use it where the machine continues.
struct KeptContext {
  std::string id;
  CodeContextSpec spec;
  int64_t count = 0, created_at = 0, last_used_at = 0;
  std::string command;
};
// A new name for an interpreter's command.
std::string NewDriverId();
bool IsDriverId(std::string_view command);

std::string EncodeContexts(const std::vector<KeptContext>& contexts);
Result<std::vector<KeptContext>> DecodeContexts(std::string_view text);

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
  // Output of the interpreter's command. Skips replayed output. True when the interpreter said that it is about to end.
  bool Take(uint64_t offset, uint8_t stream, std::string_view bytes);
  void Gap(uint64_t offset, uint64_t bytes);
  uint64_t received() const { return received_; }
  // Continues a context of the machine that this one is a copy of.
  void TakeOver(const KeptContext& kept, std::string new_command);
  // The interpreter is gone, or nobody listens to it any more.
  void Forget();
  // Makes `next` the running cell. Its output begins with text that was printed since the last cell (by threads,
  // children, timers).
  void Begin(std::shared_ptr<CodeCell> next);

 private:
  void Channel(std::string_view bytes);

  uint64_t received_ = 0;
  std::string between_[2];  // printed while no cell ran: the end of it
  bool spoke_ = false;      // the interpreter has used its channel
  // The text that a shell prints before that (it has no terminal). Shown only when the shell dies there.
  std::string startup_;
  std::string line_;       // an unfinished one of the channel's
  bool skipping_ = false;  // inside of a line that is too long or has a hole
};

}  // namespace sandbar::sandbox
