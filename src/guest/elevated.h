// The one program that runs as if its setuid bit counted, on a kernel that has no setuid files (gVisor): sudo.
//
// That kernel lets no program have two users across an exec, so it is started as root altogether, with the caller as
// its first argument; the library that every program there loads (preload.c) takes the argument away and makes the
// caller the real user, and what follows is sudo's own decision. Without the library sudo knows no such argument and
// ends: nobody becomes root by keeping it from being loaded.
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
