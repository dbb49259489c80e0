// A program of the host that a guest may take over (a virtual machine monitor), started with as little as it can live
// with: its own pid, mount, network, IPC, UTS and cgroup namespaces, a root that holds only what it loads and its own
// /proc, a user id of its own without capabilities, no_new_privs, a system call filter, and the descriptors it was
// given.
//
//   VmmPlan plan{…};
//   plan.prepare = [&](VmmPlan& p) -> Result<> { … p.keep.push_back(fd) … };   // in the child, as root, may take long
//   SB_TRY(Child child, StartVmm(plan));                                     // returns while the child works
//   … ReadJailStatus(child.status.get()) …
#pragma once

#include <linux/filter.h>
#include <sched.h>
#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "os/child.h"

namespace sandbar::os {

struct VmmPlan {
  std::vector<int> join;            // cgroup files to write "0" to
  const cpu_set_t* cpus = nullptr;  // null: all
  // Work that has to be done before; what it says when it fails reaches the caller.
  std::function<Result<>(VmmPlan&)> prepare;
  int root = -1;            // a detached mount
  std::string mount_point;  // an existing directory of the caller's mount namespace
  uid_t uid = 0;
  gid_t gid = 0;
  uint64_t capabilities = 0;  // that it keeps, as root only; bit n is capability n
  std::vector<int> keep;      // become fds 3, 4, …
  int program = -1;           // O_PATH
  int errors = -1;            // becomes its stderr; -1: /dev/null
  std::vector<std::string> argv, env;
  const sock_fprog* filter = nullptr;
  uint64_t largest_file = 0;  // that it may make of one it has; 0: no limit
};

Result<Child> StartVmm(VmmPlan plan);

// A deny-list: what only an intruder would want of such a program, on top of the program's own filter.
Result<std::vector<sock_filter>> BuildVmmFilter();

}  // namespace sandbar::os
