// What a session that continues from a saved memory takes over: its agent still knows the commands and interpreters of
// the session whose memory it was. Plain values.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "async/task.h"
#include "sandbox/code/code_context.h"
#include "sandbox/commands/commands.h"

namespace sandbar::sandbox {

struct RestoredMemory {
  std::string session;   // that ran in this memory
  std::string snapshot;  // that has the memory
  std::function<Task<std::unique_ptr<LogReader>>(std::string command)> open_log;
  std::vector<KeptContext> contexts;
};

// The contexts that were idle before and after, and ran nothing in between.
std::vector<KeptContext> StillIdle(std::vector<KeptContext> before, const std::vector<KeptContext>& after);

}  // namespace sandbar::sandbox
