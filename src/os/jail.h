// Starts the first process of a jail for a program of the host that runs a guest. The process has its own mount, pid,
// ipc, uts and cgroup namespaces and the network that it is given. It sees only a small tree that was made for it. It
// is root of a machine's user namespace, with no_new_privs. The namespaces belong to the host's user namespace; the
// process joins the machine's user namespace last. There is no exec: `body` runs in a copy of the caller, which must be
// single-threaded.
//
//   SB_TRY(Child child, StartJail(plan));           // returns while the child works
//   … child.status: end of file when the body closed it, or a text that says what failed …
#pragma once

#include <linux/filter.h>
#include <sched.h>

#include <cstdint>
#include <span>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "os/child.h"

namespace sandbar::os {

// A detached mount, and the path in the jail's tree that it goes onto.
struct JailMount {
  int mount = -1;
  const char* path = nullptr;
};

// Everything must stay valid until StartJail returns.
struct JailPlan {
  std::span<const int> join;  // cgroup files to write "0" to
  int netns = -1;
  int userns = -1;
  int root = -1;                      // detached; has the directories "proc", "visible" and what `mounts` name
  const char* mount_point = nullptr;  // existing directory of the caller's mount namespace
  std::span<const JailMount> mounts;
  std::span<const ProcCover> covers;  // over files of /proc; sources are paths in the jail. "visible" stays without
  const cpu_set_t* cpus = nullptr;    // null: all
  uint64_t open_files = 65536;
  const sock_fprog* filter = nullptr;  // of system calls; in force before the body runs
  std::span<const int> keep;           // become fds 3, 4, …; the one after them is the status, every other is closed
  void (*body)(const void* argument, int status) = nullptr;
  const void* argument = nullptr;
};

Result<Child> StartJail(const JailPlan& plan);

// The system-call filter around a program that runs a guest and has a filter of its own. It refuses calls that neither
// the program nor the guest needs, so an attacker who takes the program over reaches no more of the host's kernel than
// from a container.
Result<std::vector<sock_filter>> BuildJailFilter();

// True: the body closed it. False: not yet. An error carries the text.
Result<bool> ReadJailStatus(int status);

}  // namespace sandbar::os
