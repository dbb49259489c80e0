// A short program of ours in the sandbox, for what files calls cannot say (modes, listings). Runs as the sandbox's
// user, to its end or to a deadline; keeps at most `cap` bytes of each stream and ends a program that prints more.
#pragma once

#include <string>
#include <vector>

#include "mcp/tools.h"

namespace sandbar::mcp {

struct Ran {
  int exit_code = 0;
  std::string out, err;
  bool cut = false;  // it had more to say
};

Task<Ran> RunQuietly(const ToolCall* call, std::string session, std::vector<std::string> argv, size_t cap);

}  // namespace sandbar::mcp
