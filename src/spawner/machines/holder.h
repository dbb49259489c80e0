// The first process of a gVisor machine's jail. It starts runsc with one end of a socket pair as standard input, which
// is all that the agent in there has, and keeps the other end: whoever connects to the agent's socket is relayed to it.
// So a daemon may die and the next one connect, while the stream, which cannot be connected again, stays. The newest
// connection wins. When runsc's sandbox ends, so does the holder, and with it the pid namespace and all that is in it.
//
// Runs in a copy of the spawner, without any of its descriptors, as root of the machine's user namespace; without any
// capability once the sandbox runs. Never returns.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace sandbar::spawner {

inline constexpr size_t kMaxCommandJoin = 16;
inline constexpr const char* kHolderPidFile = "/state/pid";  // where runsc is told to write the sandbox's pid

// protocol::kGuestGone: tells the agent that nobody listens. (The spawner knows nothing else of what it relays.)
inline constexpr std::string_view kGoneMessage("\x7fSANDBAR\x01\0\0\0\x0f", 13);

struct HolderPlan {
  int listener = -1;
  std::array<int, kMaxCommandJoin> join{};  // cgroup files that runsc writes "0" to
  size_t joins = 0;
  const char* const* argv = nullptr;  // runsc and its arguments
};

// `argument` is a HolderPlan; `status` is closed when the machine runs, or gets a text that says why not.
void RunHolder(const void* argument, int status);

// Instead of a machine: runs argv to its end and exits with its code; what it said goes to `status`.
void RunProbe(const void* argument, int status);

}  // namespace sandbar::spawner
