// The first process in the jail of a gVisor machine. It starts runsc with one end of a socket pair as standard input,
// which is the agent's only stream, and keeps the other end. It relays every connection to the agent's socket to that
// stream, so a daemon may die and the next one connect, while the stream stays. The newest connection wins. When
// runsc's sandbox ends, the holder ends, and with it the pid namespace and everything in it.
//
// It runs in a copy of the spawner, without the spawner's descriptors, as root of the machine's user namespace, and
// without capabilities once the sandbox runs. It never returns.
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
