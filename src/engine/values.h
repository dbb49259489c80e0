// The values of the contract with engines: what a machine boots from, its limits and usage, and what an engine is.
// Values, for any thread.
//
//   engine::BootRequest boot{.machine_id = "m1", .limits = {.vcpus = 2}};
//   engine::Rootfs rootfs{.layers = {"sha256-…"}};
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "base/engine_table.h"
#include "base/fd.h"

namespace sandbar::engine {

using sandbar::RootfsFormat;
using AttachmentKind = NetworkKind;

// A drive in a machine: the drive itself, or a drive snapshot. Never a channel between machines: each sees a drive
// snapshot through a filesystem of its own.
struct DriveMount {
  std::string path;  // absolute, normalised, not below another mount; what is missing of it is made
  std::string name;  // of the drive when writable, of the drive snapshot otherwise
  bool writable = false;
  uint32_t uid = 0, gid = 0;  // who owns a drive that is used for the first time, as seen inside
};

// Opaque to everything but images/ and engines: ids, never host paths.
struct Rootfs {
  RootfsFormat format = RootfsFormat::kDir;
  std::vector<std::string> layers;     // content ids, topmost first
  std::string image_digest;            // names the site layer (trust store, resolv.conf, hosts) put on top of the image
  std::vector<std::string> snapshots;  // of earlier machines, topmost first, on top of all that
  std::vector<DriveMount> mounts;      // nosuid, nodev
  // The machine goes on with the memory that the first snapshot has, instead of booting. kConflict when it cannot:
  // made by another engine, kernel, processor or size of machine, or damaged; the message says which.
  bool memory = false;
  std::string owner;             // whose machine it is; empty: nobody's in particular. See Engine
  uint64_t inherited_bytes = 0;  // what the first snapshot takes of the machine's disk limit
};

struct Limits {
  uint32_t vcpus = 1;
  uint64_t memory_bytes = 0;
  uint32_t pids = 0;
  uint64_t disk_bytes = 0;
};

// The network of a machine: a host-owned netns with its listener and DNS socket, both held by the spawner too.
struct NetworkSockets {
  Fd tcp_listener;  // accept() yields redirected connections; SO_ORIGINAL_DST names the target
  Fd dns;           // UDP
};

// Whose bytes a machine or a drive writes.
struct Owner {
  uint64_t project = 0;  // a number of the caller's choice, 48 bits; 0: nobody's yet
  uint64_t bytes = 0;    // what that project may have on this host's disk; 0: half of what there is
};

struct BootRequest {
  std::string machine_id;  // [a-z0-9-]{1,40}, unique for ever; chosen by the caller, who records it before Configure
  std::string engine;      // one of Engine::engines(); empty: Engine::info(). Its format and network are expected below
  RootfsFormat format = RootfsFormat::kDir;
  AttachmentKind network = AttachmentKind::kLocal;
  Limits limits;
  // Wall clock from now; the spawner kills then, whether the server lives or not. 0: none yet.
  std::chrono::milliseconds deadline{0};
  bool nesting = false;  // it runs containers. kUnsupported when its engine says why not
  Owner owner;           // kQuota when it has used up what it may have
};

struct MachineSpec {
  std::string hostname;
};

struct Usage {
  uint64_t cpu_ns = 0;
  uint64_t memory_bytes = 0;
  uint64_t memory_peak_bytes = 0;
  uint64_t disk_bytes = 0;
  uint32_t pids = 0;
  uint64_t oom_kills = 0;
};

// What a snapshot of a running machine cost.
struct MemorySnapshot {
  std::chrono::milliseconds pause{0};  // how long the machine stood still
  uint64_t memory_bytes = 0;           // what its memory takes on disk
};

enum class MachineState { kBooted, kConfigured, kExited };

struct MachineInfo {
  std::string machine_id;
  MachineState state = MachineState::kBooted;
  std::string engine;
};

// One way to make machines, as it works on this host. base/engine_table.h says what stands between its guests and the
// host's kernel.
struct EngineInfo {
  std::string name;
  int isolation_class = 1;
  AttachmentKind attachment = AttachmentKind::kLocal;
  RootfsFormat format = RootfsFormat::kDir;
  // A machine's writable layer begins as a copy of the topmost snapshot. The machine's own snapshot then replaces that
  // snapshot in the stack instead of lying on top of it.
  bool copies_snapshots = false;
  bool keeps_memory = false;     // Machine::SnapshotMemory, Rootfs::memory
  bool own_kernel = false;       // a guest has a kernel of its own: the host's kernel knows none of its processes
  bool emulated = false;         // on an emulated processor: the operator decides its class
  bool restores_slowly = false;  // a machine that runs already, or goes on from its memory, may answer late
  bool usable = true;
  std::string why_not;     // when not usable: what is missing and how to get it
  std::string no_nesting;  // why its machines run no containers; empty: they do
};

}  // namespace sandbar::engine
