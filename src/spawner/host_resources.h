// What a spawner makes once at start and all machines share: its private mount namespace, the agent's executable, the
// system call filters, the /dev template, control groups, user id ranges, the disk, what each engine needs. Single
// thread; owned by program.cc.
//
// All mounts are in the private mount namespace: the host does not see them, and they are gone with the process.
//   /run/sandbar/mnt            tmpfs: agent, mp/, proc/ (mount points), ro/ (read-only view of the next three)
//     gvisor/, below*/          the agent once more, for machines whose kernel has to read it, and layers for them
//     empty, nothing/, sizes/   covers for /proc files, /proc directories, files that show a machine's size
//     dev/ layers/ store/ m/    the /dev template, image layers, the disk, scratch for older kernels
#pragma once

#include <linux/filter.h>

#include <memory>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "os/cgroup.h"
#include "os/uid_lease.h"
#include "spawner/disk/disk.h"
#include "spawner/disk/layers.h"
#include "spawner/machines/gvisor.h"
#include "spawner/machines/microvm.h"
#include "spawner/machines/unmounts.h"
#include "spawner/options.h"
#include "spawner/protocol.h"

namespace sandbar::spawner {

inline constexpr const char* kMountDir = "/run/sandbar/mnt";

struct HostResources {
  Options options;
  std::string instance;
  Fd data, run, agents;  // directories
  Fd lock;               // held for life: one spawner per data directory
  Fd scanner;            // O_PATH of sandbar-scanner, as it was when we started
  Fd agent;              // O_PATH of the executable, mode 0111, not in any guest's tree
  Fd stage;              // for tests: the program that enters machines and then becomes `agent`; none: `agent` does
  std::vector<sock_filter> filter;
  std::vector<sock_filter> nesting_filter;  // of machines that run containers
  std::unique_ptr<os::CgroupTree> cgroups;
  std::unique_ptr<os::UidPool> uids;
  std::unique_ptr<Disk> disk;
  std::unique_ptr<Layers> layers;
  std::unique_ptr<Unmounts> unmounts;
  std::vector<int> cpus;             // online cpus that we may use
  std::vector<uint32_t> cpu_use;     // machines pinned to each of them
  std::vector<EngineEntry> engines;  // in order of class
  Gvisor gvisor;
  std::unique_ptr<Microvm> microvm;  // null when it does not work
  std::string no_microvm;            // and why
  bool map_dev = true;               // /dev can be id-mapped (tmpfs, kernel 6.3)
  bool tells_disk_figures = false;   // to class 1 machines (machines/figures_page.h)
};

// kConflict when another spawner holds the data directory. Errors are meant for the operator: what, why, what to do.
Result<std::unique_ptr<HostResources>> PrepareHost(Options options);

}  // namespace sandbar::spawner
