// A machine's first process between clone and exec: the only code of the project that runs in a half-made machine.
// Everything that allocates or can be reported nicely happens before, in the parent; the child performs raw steps and
// dies with {step, errno} down a pipe that a successful exec closes. Namespaces other than the user namespace belong to
// the host's user namespace, which is joined last: root inside owns nothing but its own processes and files.
//
//   SB_TRY(Child child, StartChild(plan));          // returns while the child works
//   … poll child.status …
//   SB_TRY(bool running, ReadChildStatus(child.status.get()));
#pragma once

#include <linux/filter.h>
#include <sched.h>
#include <sys/types.h>

#include <cstdint>
#include <span>

#include "base/fd.h"
#include "base/result.h"

namespace sandbar::os {

// Bound over something in the machine's /proc: `source` is a path in the spawner's mount namespace.
struct ProcCover {
  const char* source = nullptr;
  const char* target = nullptr;
};

// A detached mount and the directory of the new root that it goes onto, which must exist.
struct GuestMount {
  int mount = -1;
  const char* path = nullptr;
};

// What a machine that runs containers has besides. The mount namespace that its processes live in belongs to its own
// user namespace, so they may mount; but it is a copy of one that belongs to the host, and in such a copy the kernel
// lets nobody unmount, move or make writable what was there before: every cover and read-only mount stays.
struct NestingPlan {
  std::span<const int> group_root;  // cgroup files: where the cgroup namespace is made
  std::span<const int> group_home;  // and where the agent goes then
  // A detached directory with "proc" and "sys", below /sys. The kernel lets a container mount a /proc of its own only
  // where one without covers is mounted already, and likewise with sysfs, so they are in here, where no path leads to.
  int hidden = -1;
};

// Plain values only: the child may not allocate. All pointers must stay valid until StartChild returns (the child has
// its own copy of the address space from then on).
struct ChildPlan {
  std::span<const int> join;  // cgroup files to write "0" to
  // For a machine that runs containers; null: it does not.
  const struct NestingPlan* nesting = nullptr;
  int netns = -1;
  int userns = -1;
  int root = -1, dev = -1, pts = -1, shm = -1, sys = -1;  // detached mounts
  std::span<const GuestMount> mounts;
  const char* mount_point = nullptr;  // existing directory of the spawner's mount namespace
  std::span<const ProcCover> covers;
  std::span<const char* const> read_only;  // paths below /proc
  const char* hostname = nullptr;
  const cpu_set_t* cpus = nullptr;  // null: all
  uint64_t open_files = 65536;
  std::span<const int> keep;  // become fds 3, 4, …
  int agent = -1;             // O_PATH fd of the executable
  const char* const* argv = nullptr;
  const sock_fprog* filter = nullptr;
};

struct Child {
  pid_t pid = 0;
  Fd pidfd;
  Fd status;  // readable when the child has exec'd or died
};

Result<Child> StartChild(const ChildPlan& plan);

// True: the agent runs. False: not yet. An error names the step that failed.
Result<bool> ReadChildStatus(int status);

}  // namespace sandbar::os
