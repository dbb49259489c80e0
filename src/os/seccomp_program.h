// Assembles classic BPF for seccomp from a table: per system call an action, or rules on its arguments. Equal
// neighbours are merged and found by binary search, so the program is short (loading it is on the path of every boot)
// and plain "allow" never looks at an argument (the kernel then skips the filter altogether). Arguments are compared by
// their low 32 bits: every argument looked at here is an int for the kernel, too.
#pragma once

#include <linux/filter.h>
#include <linux/seccomp.h>

#include <cstdint>
#include <vector>

#include "base/result.h"

namespace sandbar::os {

struct SyscallAction {
  uint32_t value = SECCOMP_RET_KILL_PROCESS;
  bool operator==(const SyscallAction&) const = default;
};
inline constexpr SyscallAction kAllow{SECCOMP_RET_ALLOW};
inline constexpr SyscallAction kKill{SECCOMP_RET_KILL_PROCESS};
constexpr SyscallAction Errno(int e) {
  return {SECCOMP_RET_ERRNO | static_cast<uint32_t>(e)};
}

struct ArgCheck {
  enum Op : uint8_t { kEqual, kAnyBit, kAtLeast };
  uint8_t arg = 0;
  Op op = kEqual;
  uint32_t value = 0;
  uint32_t mask = 0xffffffff;  // for kEqual: bits that count
};

// First rule whose checks all hold decides.
struct ArgRule {
  std::vector<ArgCheck> checks;
  SyscallAction action;
};

struct SyscallEntry {
  int number = 0;
  SyscallAction action;        // when no rule holds
  std::vector<ArgRule> rules;  // may be empty
};

// Ioctl requests that are closed to every process that can write to the machines' store:
// - cloning of file ranges: a few megabytes could look like terabytes to a process that reads them;
// - file flags: a change gives an empty file its checksums back, a file with checksums can be compressed, and kernel
//   threads that no machine is charged for do the compression;
// - btrfs's own requests: a guest's subvolume would lie outside its quota, its snapshots and its deletion.
std::vector<ArgRule> StoreRules();

// x86-64 only; every other ABI (i386 by int 0x80, x32) is killed. `other` is for numbers without an entry.
Result<std::vector<sock_filter>> AssembleFilter(std::vector<SyscallEntry> entries, SyscallAction other);

}  // namespace sandbar::os
