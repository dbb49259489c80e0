// What the spawner tells the first process of a machine that it started ahead (os/machine_init.h): two messages with
// descriptors, one with what does not depend on the image, one with the rest. No I/O here.
//
//   InitMessage message = Encode(setup);         // a packet: bytes and descriptors (os/unix_socket.h)
#pragma once

#include <linux/filter.h>
#include <sched.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/result.h"

namespace sandbar::protocol {

// Bound over something in the machine's /proc: `source` is a path in the spawner's mount namespace.
struct ProcCover {
  std::string source, target;
};

// A detached mount and the directory of the new root that it goes onto, which must exist.
struct GuestMount {
  int mount = -1;
  std::string path;
};

// With these the agent answers statfs in the machine; without, the kernel does.
struct FiguresFds {
  int page = -1;  // protocol/disk_figures.h
  int ask = -1;   // an eventfd: asks the spawner for new figures
  bool operator==(const FiguresFds&) const = default;
};

// What does not depend on the image. Numbers of descriptors are the sender's.
struct InitSetup {
  std::vector<int> join;  // cgroup files to write "0" to; by the starter, no part of the message
  int netns = -1;
  std::string proc_at;  // existing directory of the spawner's mount namespace: where /proc waits for the root
  std::vector<ProcCover> covers;
  std::vector<std::string> read_only;  // paths below /proc
  uint64_t open_files = 65536;
  std::vector<sock_filter> filter;
  uint64_t capabilities = 0;
  // A machine that runs containers. The mount namespace that its processes live in belongs to its own user namespace,
  // so they may mount; but it is a copy of one that belongs to the host, and in such a copy the kernel lets nobody
  // unmount, move or make writable what was there before: every cover and read-only mount stays.
  bool nesting = false;
  std::vector<int> group_root;  // cgroup files: where the cgroup namespace is made
  std::vector<int> group_home;  // and where the agent goes then
  FiguresFds figures;
};

struct InitPlan {
  int userns = -1;
  int root = -1, dev = -1, pts = -1, shm = -1, sys = -1;  // detached mounts
  // Nesting: a detached directory with "proc" and "sys", below /sys. The kernel lets a container mount a /proc of its
  // own only where one without covers is mounted already, and likewise with sysfs, so they are in here, where no path
  // leads to.
  int hidden = -1;
  std::vector<GuestMount> mounts;
  std::string mount_point;  // existing directory of the spawner's mount namespace
  std::vector<ProcCover> covers;
  std::string hostname;
  std::optional<cpu_set_t> cpus;  // none: all
  std::vector<int> keep;          // for the agent
  // An executable (O_PATH) to become, with `keep` as 3, 4, … and these arguments; -1: this program goes on.
  int agent = -1;
  std::vector<std::string> argv;
};

// Both fit a packet (os/unix_socket.h).
inline constexpr size_t kMaxInitBytes = 64 << 10;
struct InitMessage {
  std::string bytes;
  std::vector<int> fds;
};
InitMessage Encode(const InitSetup& setup);
InitMessage Encode(const InitPlan& plan);
// Numbers of descriptors are indexes into `fds` then. kProtocol when it is not such a message.
Result<InitSetup> DecodeInitSetup(std::string_view bytes, const std::vector<Fd>& fds);
Result<InitPlan> DecodeInitPlan(std::string_view bytes, const std::vector<Fd>& fds);

}  // namespace sandbar::protocol
