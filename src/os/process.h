// Processes by pidfd: no pid is ever signalled after it may have been reused. Used by the spawner's only thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"

namespace sandbar::os {

// Like fork with namespaces: 0 in the child, -1 and errno on failure. The child starts with all signals at their
// defaults. Async-signal-safe.
pid_t Clone3Raw(uint64_t flags, int* pidfd);

Result<> SendSignal(int pidfd, int signal);
// Reaps a child: its wait status as a shell reports it (0-255, 128+signal), or nothing while it lives.
Result<std::optional<int>> TryReap(int pidfd);

// Start time in clock ticks since boot: with the pid it names a process for ever.
Result<uint64_t> ProcessStartTime(pid_t pid);

// Runs a program of the host to its end; when it fails, what it said is in the error. Only at start, never while
// serving. `said`: what it said when it succeeded.
Result<> RunProgram(const std::vector<std::string>& argv, std::string* said = nullptr);

// For a process of ours that may live long: it must not hold a peer's connection, a lease or anything else. Keeps the
// standard three.
void CloseAllBut(std::vector<int> kept);

// Milliseconds that also count while the host sleeps.
int64_t BootTimeMs();

}  // namespace sandbar::os
