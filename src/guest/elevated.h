// Runs sudo as if its setuid bit counted, on a kernel without setuid files (gVisor).
//
// That kernel lets no program have two users across an exec. So the agent starts sudo as root, with the caller as its
// first argument. A library that every program there loads (preload.c) removes the argument and makes the caller the
// real user. From there on sudo decides by itself. Without the library sudo does not know the argument and ends, so a
// caller cannot become root by keeping the library out.
//
// For forked children only, as the caller with root as the saved user.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"

namespace sandbar::guest {

inline constexpr std::string_view kCallerArgument = "--sandbar-caller=";

// Open when its bit would count elsewhere: root's, of the root file system, and written by nobody else.
Fd OpenElevated(const std::string& path);

// Returns errno, and only on failure. What was opened is what runs; nothing in the environment may steer the loader.
// The groups stay the caller's.
int ExecElevated(const Fd& file, uid_t caller, std::vector<std::string> argv, std::vector<std::string> env);

// For execve.
std::vector<char*> Pointers(const std::vector<std::string>& strings);

}  // namespace sandbar::guest
