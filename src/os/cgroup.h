// Resource limits of machines by control groups, version 1 and 2 behind one interface. Used by the spawner's only
// thread. One tree per instance: /sandbar/<instance>/<machine>/{agent,cmds}. The quota for cpu sits on the machine,
// those for memory and pids on cmds (plus a small allowance for the agent on the machine itself), so that a memory bomb
// or fork bomb of a command never hits the agent. The instance's group holds all machines to a share of the host.
//
//   SB_TRY(auto tree, CgroupTree::Open(instance, 80));
//   SB_TRY(auto group, tree->Create("m1", {.vcpus = 2, .memory_bytes = 2ull << 30, .pids = 512}));
//   SB_TRY(auto join, group->OpenAgentJoin());   // the child writes "0" to each
//
// A MachineCgroup does not outlive its tree; dropping one leaves the kernel's groups alone (Remove() removes them).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"

namespace sandbar::os {

struct CgroupLimits {
  uint32_t vcpus = 1;
  uint64_t memory_bytes = 0;  // 0: no limit of its own (the instance's share still holds)
  uint32_t pids = 0;          // 0: no limit of its own
};

struct CgroupUsage {
  uint64_t cpu_ns = 0, memory_bytes = 0, memory_peak_bytes = 0;
  uint32_t pids = 0;
  uint64_t oom_kills = 0;
};

// A subtree that a machine's root divides as it likes, for containers of its own. Version 2 only, below the groups that
// carry the limits; of version 1 nothing is ever given away.
struct CgroupDelegation {
  std::vector<Fd> root;      // joined for a moment: the namespace that is made then has this as its root
  std::vector<Fd> agent;     // and after that these: the agent lives outside of it
  std::vector<Fd> commands;  // in place of OpenCommandJoin
};

class MachineCgroup {
 public:
  virtual ~MachineCgroup();
  virtual Result<> SetLimits(const CgroupLimits& limits) = 0;
  virtual Result<CgroupUsage> Usage() const = 0;
  virtual Result<> Freeze(bool frozen) = 0;
  virtual Result<> KillAll() = 0;  // SIGKILL to every member, frozen ones too
  virtual Result<bool> Empty() const = 0;
  virtual Result<> Remove() = 0;  // kConflict while it has members: the caller retries later
  // A process moves itself by writing "0" to each of these, first thing after it was forked. That works for a process
  // without rights on the host, in user and cgroup namespaces of its own: the kernel checks the credentials that opened
  // the file (cgroup_test.cc does just that). What the agent forks, file workers included, belongs into the commands'
  // part; only the agent itself lives on the agent's allowance.
  virtual Result<std::vector<Fd>> OpenAgentJoin() const = 0;
  virtual Result<std::vector<Fd>> OpenCommandJoin() const = 0;
  // Once per machine, before anything runs in it. `owner`: the host's id of its root.
  virtual Result<CgroupDelegation> Delegate(uint32_t owner) = 0;
};

class CgroupTree {
 public:
  virtual ~CgroupTree();
  static Result<std::unique_ptr<CgroupTree>> Open(const std::string& instance, int host_share_percent);
  virtual Result<std::unique_ptr<MachineCgroup>> Create(const std::string& machine, const CgroupLimits& limits) = 0;
  virtual Result<std::unique_ptr<MachineCgroup>> OpenExisting(const std::string& machine) = 0;
  virtual std::vector<std::string> List() const = 0;
  // From now on machines may open /dev/kvm, if one is put before them. Only for a host whose engine needs it.
  virtual Result<> AllowKvm() = 0;
  // MachineCgroup::Delegate can work here.
  virtual bool can_delegate() const = 0;
  // What is in force, for `doctor`: "v1 cpu,cpuacct,memory,pids,freezer,devices".
  virtual std::string Describe() const = 0;
};

}  // namespace sandbar::os
