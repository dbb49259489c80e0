// read_output's way to code that run_code left running. Single loop.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "mcp/tools.h"

namespace sandbar::mcp {

bool IsCellHandle(std::string_view handle);
// What it said, once it ended or `wait` passed. `kill` interrupts it, and restarts its context when that does not help.
Task<ToolResult> ReadCell(ToolCall* call, std::string handle, std::chrono::milliseconds wait, bool kill);

}  // namespace sandbar::mcp
