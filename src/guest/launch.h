// Starts one command: fork, cgroup join, session, pipes or terminal, user, cwd, PATH lookup, exec.
//
// Launch() returns as soon as the child exists; whether the exec worked is told by the status pipe: end of file means
// it did, a LaunchFailure record means it did not. That wait is asynchronous because a hostile file system can make
// chdir or exec hang. Loop thread only.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <climits>
#include <cstdint>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "protocol/guest_frames.h"

namespace sandbar::guest {

// For close_range: gVisor takes no larger number.
inline constexpr unsigned kLastFd = INT_MAX;

// What every child needs from the agent's start-up. `null` and `pts` are held open since before any guest code ran.
struct ChildSetup {
  Fd null;                   // /dev/null, or the reading end of an empty pipe
  Fd pts;                    // the directory of the machine's terminals (terminal.h); empty: there are none
  std::vector<Fd> join_fds;  // writing "0" moves the writer into the commands' cgroups
  rlimit files{};            // RLIMIT_NOFILE as it was before the agent raised its own
  // On a kernel without setuid files: a program that runs as if its bit counted (elevated.h); empty: none.
  std::string elevated;
  Fd written;  // of a virtual machine: the directory that holds what was written to its root
  bool own_kernel = false;
};

enum class LaunchStep : uint8_t { kJoin, kSession, kUser, kCwd, kExec };

// Sent over the status pipe, at most once.
struct LaunchFailure {
  LaunchStep step = LaunchStep::kExec;
  bool found = false;  // kExec: a file of that name exists somewhere on PATH
  int32_t err = 0;
};

struct Launched {
  pid_t pid = 0;
  Fd out, err, status;  // non-blocking reading ends; of a terminal: `out` is its master, `err` is empty
  Fd channel;           // our end of it, when it was asked for
  Fd input;             // the non-blocking writing end of standard input, when it was asked for
  Fd terminal;          // the slave, to hold until the command has ended
  Fd signals;           // of a terminal that lacks signals: the non-blocking writing end of its signaller's pipe
};

Result<Launched> Launch(const ChildSetup& setup, const protocol::Exec& request);
protocol::ExecFailed Describe(const protocol::Exec& request, const LaunchFailure& failure);

// For forked children: into the cgroups.
bool JoinCgroups(const ChildSetup& setup);
// A pipe whose reading end is non-blocking for the agent; both ends close on exec.
struct Pipe {
  Fd read, write;
};
Result<Pipe> MakePipe();

}  // namespace sandbar::guest
