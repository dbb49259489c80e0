// The two implementations behind CgroupTree, and what they share. Not for use outside os/ and its tests.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "os/cgroup.h"
#include "os/cgroup_fs.h"

namespace sandbar::os {

struct CgroupHost {
  uint64_t memory_bytes = 0;
  uint32_t cpus = 1;
};

struct CgroupTreeOptions {
  std::string instance;
  int host_share_percent = 80;
  CgroupHost host;
};

// On top of what the commands get: the agent's memory and its threads and helpers.
inline constexpr uint64_t kAgentMemoryAllowance = 64ull << 20;
inline constexpr uint32_t kAgentPidsAllowance = 64;
inline constexpr uint64_t kCpuPeriodUs = 100000;
// Of a delegated subtree: every group costs the host's memory.
inline constexpr int kMaxDelegatedGroups = 1000, kMaxDelegatedDepth = 16;

// Names become directory names and parts of written paths.
bool IsCgroupName(const std::string& name);

// All cpu time of a machine, but never more than the instance's share: version 1 refuses a child above its parent.
uint64_t CpuQuotaUs(uint32_t vcpus, uint64_t share_quota_us);
uint64_t ShareCpuQuotaUs(const CgroupTreeOptions& options);
uint64_t ShareMemory(const CgroupTreeOptions& options);

// Makes `dir` and its child "init" for the commands, and gives both to a machine's root: their names, not their limits.
Result<> MakeDelegated(CgroupFs& fs, const std::string& dir, uint32_t owner);

// SIGKILL to each process listed in `procs_file`, after checking by /proc that it still is in a group below `group`
// (numbers are reused). Returns how many were signalled.
int KillListed(const CgroupFs& fs, const std::string& procs_file, const std::string& controller,
               const std::string& group);

// How a group is frozen and thawed, and whether all its processes are frozen now.
struct Freezer {
  std::function<Result<>(bool frozen)> set;
  std::function<Result<bool>()> frozen;
};
// Waits so many half milliseconds. False: some process is not there yet.
Result<bool> TryFreeze(const Freezer& freezer, bool frozen, int tries);
// Waits 100 ms at most. A process that waits for another one in a sleep that no freezer ends stops only when that other
// one goes on; a call of statfs that is being answered (guest/statfs_server.h) is such a sleep. So this lets all go on
// for a moment, and tries again. kUnavailable: some process is not there yet.
Result<> FreezeInTurns(const Freezer& freezer, bool frozen);

Result<std::unique_ptr<CgroupTree>> OpenCgroup1(std::unique_ptr<CgroupFs> fs, const CgroupMounts& mounts,
                                                const CgroupTreeOptions& options);
Result<std::unique_ptr<CgroupTree>> OpenCgroup2(std::unique_ptr<CgroupFs> fs, const CgroupMounts& mounts,
                                                const CgroupTreeOptions& options);

// Restricts devices for a version 2 group and everything below it to null, zero, full, random, urandom, tty, ptmx and
// pts, and kvm if wanted. Attaching again replaces the former program.
Result<> AttachDeviceFilter(int cgroup_dir, bool kvm);

}  // namespace sandbar::os
