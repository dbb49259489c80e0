// The drivers' texts (drivers/*), embedded by the build, and how an interpreter is started with one. Pure, any thread.
#pragma once

#include <string>
#include <string_view>

#include "protocol/guest_frames.h"
#include "sandbox/code/code.h"

namespace sandbar::sandbox {

extern const std::string_view kPythonDriver;
extern const std::string_view kNodeDriver;
extern const std::string_view kBashDriver;

// Completes the request for an interpreter: its program, environment and channel descriptor.
void AddDriver(CodeLanguage language, protocol::Exec& request);

// The bytes that a driver reads from its channel for one cell: "run <n> <language> <bytes of code, cwd, env>\n", then
// those bytes, env as JSON. A shell reads it as a command of its own instead.
std::string DriverRequest(int64_t count, CodeLanguage language, const CodeSpec& spec);

}  // namespace sandbar::sandbox
