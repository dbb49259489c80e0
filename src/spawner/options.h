// The spawner's command line.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/result.h"

namespace sandbar::spawner {

struct Options {
  std::string data, images, guest;
  std::string stage;       // for tests: the real agent, which enters machines and then becomes `guest`
  std::string kernel;      // directory with the guest kernel of microVMs
  std::string qemu;        // QEMU's program; empty: Debian's
  bool vm_restore = true;  // microVMs start from templates; false: each one boots
  std::string scanner;     // sandbar-scanner; empty: snapshots cannot be checked nor compared
  uint32_t daemon_uid = 0, daemon_gid = 0;
  bool ephemeral = false;       // end, machines and all, when the daemon's connection does
  bool foreground = false;      // do not detach (for a service manager and for tests)
  std::string runsc;            // gVisor's program; empty: looked for; "none": not used
  std::string gvisor_platform;  // of runsc; empty: the first that works
  bool allow_nesting = false;   // machines of class 1 may run containers, if they ask to
  std::string extra_ca;
  log::Level log = log::Level::kInfo;
  int host_share = 80;
  uint64_t disk_pool_bytes = 0;  // 0: most of what is free
  bool disk_limits = true;       // false: plain directories, no limit per machine
  // Mechanisms to pretend this kernel lacks: overlay (layers by fd), erofs (file-backed), quota (simple quotas).
  std::set<std::string> force_fallback;
};

std::string Usage();
Result<Options> ParseOptions(const std::vector<std::string>& args);

}  // namespace sandbar::spawner
