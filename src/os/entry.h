// How a machine's first process enters its machine. It is started ahead, as the host's root in namespaces of its own,
// and waits there with everything done that needs no image; a second message tells it the rest. So what a new process
// costs is paid before anybody waits for it. It becomes the guest by giving up, step by step: root filesystem, ids,
// system calls, capabilities. Namespaces other than the user namespace belong to the host's user namespace, which is
// joined last: root inside owns nothing but its own processes and files.
//
// This is the side of the process itself and the messages; the spawner's side is os/child.h. One thread.
//
//   auto entered = EnterMachine(control);              // returns in the machine
//   if (!entered) ReportEntry(status, entered.error());
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

namespace sandbar::os {

// Bound over something in the machine's /proc: `source` is a path in the spawner's mount namespace.
struct ProcCover {
  std::string source, target;
};

// A detached mount and the directory of the new root that it goes onto, which must exist.
struct GuestMount {
  int mount = -1;
  std::string path;
};

// What does not depend on the image. Numbers of descriptors are the sender's.
struct EntryStart {
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
};

struct EntryPlan {
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
inline constexpr size_t kMaxEntryBytes = 64 << 10;
struct EntryMessage {
  std::string bytes;
  std::vector<int> fds;
};
EntryMessage Encode(const EntryStart& start);
EntryMessage Encode(const EntryPlan& plan);
// Numbers of descriptors are indexes into `fds` then. kProtocol when it is not such a message.
Result<EntryStart> DecodeEntryStart(std::string_view bytes, const std::vector<Fd>& fds);
Result<EntryPlan> DecodeEntryPlan(std::string_view bytes, const std::vector<Fd>& fds);

// Reads both messages from `control` and does what they say. Returns what EntryPlan::keep was, or does not return when
// there is an executable to become. Every descriptor that it made or got besides is still open, close-on-exec.
Result<std::vector<Fd>> EnterMachine(int control);
// To whoever started this process: what went wrong. Closing `status` without it says that the agent runs.
void ReportEntry(int status, const Error& error);

}  // namespace sandbar::os
