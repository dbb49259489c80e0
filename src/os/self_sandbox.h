// The daemon's own confinement: everything it must never need is given up for good, right after start and before the
// first byte from the network. Call once, in the main thread, before any other thread exists.
#pragma once

#include <cstdint>

#include "base/result.h"

namespace sandbar::os {

struct SelfSandboxOptions {
  uint32_t uid = 0, gid = 0;
  bool keep_stdio = true;  // false: 0, 1 and 2 become /dev/null
};

// No groups, the given uid and gid, no capabilities, no_new_privs, non-dumpable, RLIMIT_CORE 0, and a filter that
// refuses mount, setns, unshare, ptrace, bpf and the like. When already running as that uid, the steps that need root
// are skipped.
Result<> DropToDaemon(const SelfSandboxOptions& options);

}  // namespace sandbar::os
