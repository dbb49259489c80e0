// What the daemon knows of engines: an Engine boots sandbar-guest in a machine and hands back a byte stream to it that
// can be connected again. Every feature (exec, files, pty) is frames on that stream (engine/guest_link/guest_link.h).
// One class implements Engine for all engines: it asks the spawner (engine/spawner_client/spawner_engine.h). A new
// engine is therefore code of the spawner: spawner/machines/launch.h has the checklist, base/engine_table.h the facts.
//
//   auto m = co_await engine.Boot(boot);          // rootfs format, network, limits: not named, no image yet
//   co_await m->Configure(rootfs, spec);          // image and spec: the agent runs
//   auto sock = co_await m->Connect();            // speak frames; connect again after a crash
//   auto fd = co_await m->Dial(3000);             // a server that a command started
//   co_await m->Quiesce / Destroy
//
// Single loop: all calls from the daemon's loop thread. Machines survive the daemon (the spawner supervises them);
// after a restart Engine::Attach gives the same Machine back.
#pragma once

#include <boost/asio/local/stream_protocol.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "async/task.h"
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
  std::chrono::milliseconds deadline{0};  // wall clock from now; the spawner kills then, whether the server lives or not. 0: none yet
  bool nesting = false;                   // it runs containers. kUnsupported when its engine says why not
  Owner owner;                            // kQuota when it has used up what it may have
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

// What a scan through a snapshot's layer found.
struct LayerReport {
  uint64_t bytes = 0, files = 0;
  std::string digest;              // of the manifest
  uint64_t differences = 0;        // between layer and manifest
  std::vector<std::string> first;  // the first of them, such as "changed /etc/passwd"
};

struct LayerStack {
  std::vector<std::string> snapshots, image;  // topmost first
};

struct FileChange {
  char kind = 'M';  // A added, D deleted, M changed
  char type = 'f';  // d directory, f file, l link, p pipe, s socket, x other
  uint64_t size = 0, before = 0;
  std::string path;  // printable: %XX for what is not, for spaces and for "%"
};

struct LayerDiff {
  std::vector<FileChange> changes;
  bool more = false;  // there are more than anybody wants to read
};

// What a snapshot of a running machine cost.
struct LiveSnapshot {
  std::chrono::milliseconds pause{0};  // how long the machine stood still
  uint64_t memory_bytes = 0;           // what its memory takes on disk
};

enum class MachineState { kBooted, kConfigured, kExited };

struct MachineInfo {
  std::string machine_id;
  MachineState state = MachineState::kBooted;
  std::string engine;
};

class Machine {
 public:
  virtual ~Machine() = default;
  virtual const std::string& id() const = 0;
  // Mounts the rootfs and starts the agent.
  virtual Task<> Configure(Rootfs rootfs, MachineSpec spec) = 0;
  // A fresh connection to the agent; at most one is live at a time (a new one replaces the old).
  virtual Task<asio::local::stream_protocol::socket> Connect() = 0;
  // A connected, non-blocking byte stream to a server in the machine that listens on 127.0.0.1:port or [::1]:port,
  // whatever its network policy. kUnavailable when nothing listens there, kTimeout when it does not accept,
  // kUnsupported when the machine's loopback is out of the engine's reach: GuestLink::Dial does it then.
  virtual Task<Fd> Dial(uint16_t port) = 0;
  // Valid once, after Boot or Attach: moves the sockets out.
  virtual NetworkSockets TakeNetwork() = 0;
  // `inherited_bytes` as in Rootfs.
  virtual Task<> SetLimits(Limits limits, uint64_t inherited_bytes) = 0;
  // What it writes, and wrote, is this project's: for one that was booted for nobody. kQuota as for Boot.
  virtual Task<> Assign(Owner owner) = 0;
  virtual Task<> SetDeadline(std::chrono::milliseconds from_now) = 0;
  virtual Task<Usage> GetUsage() = 0;
  // What it sent that is neither TCP nor DNS, and was dropped for that.
  virtual Task<uint64_t> DroppedPackets() = 0;
  virtual Task<> Pause() = 0;
  virtual Task<> Resume() = 0;
  // Kills everything and removes every trace (namespaces, cgroups, mounts, writable layer). Idempotent.
  virtual Task<Usage> Destroy() = 0;
  // The same, but what the machine wrote stays as the snapshot of this name ([a-zA-Z0-9_-]{1,64}, unique for ever).
  // Costs the same at any size and survives the daemon from then on. Idempotent; kConflict when the name is taken. When
  // it fails nothing is lost, and it or Destroy may be called again.
  virtual Task<Usage> DestroyKeeping(std::string snapshot) = 0;
  // Completes when the machine has ended by itself (agent died, deadline, host OOM).
  virtual Task<> WaitExit() = 0;
  // What its agent has to say on a connection (OpenGuestLink); empty: nothing.
  virtual std::string AgentKey() const { return {}; }
  // A snapshot of the machine while it runs: its disk and its memory of one moment. Afterwards it goes on, or (not
  // `go_on`) stands still, for Destroy to follow. kUnsupported where EngineInfo::live is not set; kConflict when the
  // name is taken.
  virtual Task<LiveSnapshot> SnapshotLive(std::string snapshot, bool go_on) = 0;
};

// One way to make machines, as it works on this host. base/engine_table.h says what stands between its guests and the
// host's kernel.
struct EngineInfo {
  std::string name;
  int isolation_class = 1;
  AttachmentKind attachment = AttachmentKind::kLocal;
  RootfsFormat format = RootfsFormat::kDir;
  // A machine's own layer holds all that the topmost snapshot below it did: the next snapshot stands in its place, not
  // on top of it.
  bool copies_snapshots = false;
  bool live = false;        // Machine::SnapshotLive, Rootfs::memory
  bool own_kernel = false;  // a guest has a kernel of its own: the host's kernel knows none of its processes
  bool emulated = false;    // on an emulated processor: slow to answer, and the operator decides its class
  bool usable = true;
  std::string why_not;     // when not usable: what is missing and how to get it
  std::string no_nesting;  // why its machines run no containers; empty: they do
};

// Work that takes as long as there are files or bytes names its owner: nobody gets more than a share of it at a time,
// so that what one has left on disk does not hold up the others. kTooMany: try again later.
class Engine {
 public:
  virtual ~Engine() = default;
  // The one that machines get whose request names none.
  virtual EngineInfo info() const = 0;
  // Every one that is known, usable or not, in the order of classes.
  virtual std::vector<EngineInfo> engines() const = 0;
  // kUnsupported when the engine named is unknown or not usable: never another one in its place.
  virtual Task<std::unique_ptr<Machine>> Boot(BootRequest request) = 0;
  // Machines of this instance that the spawner still holds. Those that are ending are waited for, some seconds at
  // most.
  virtual Task<std::vector<MachineInfo>> List() = 0;
  virtual Task<std::unique_ptr<Machine>> Attach(std::string machine_id) = 0;
  // Every snapshot on disk, in the order of names.
  virtual Task<std::vector<std::string>> ListSnapshots() = 0;
  // Makes one layer that shows what these show (topmost first). Takes as long as there are files; the old ones stay.
  // Idempotent: when `target` exists already, it is taken as done.
  virtual Task<> FlattenSnapshots(std::vector<std::string> layers, std::string target, std::string owner) = 0;
  // Reads the whole layer, writes down what every entry is, and returns when all of it is on disk for good. Once per
  // layer: a second manifest would vouch for whatever has become of the first one's files.
  virtual Task<LayerReport> WriteManifest(std::string snapshot, std::string owner) = 0;
  // Reads the whole layer and compares. kNotFound when layer or manifest is missing.
  virtual Task<LayerReport> CheckManifest(std::string snapshot, std::string owner) = 0;
  virtual Task<LayerDiff> Diff(LayerStack before, LayerStack after, std::string owner) = 0;
  // No machine may run on it. Not an error when it is gone already. Its memory goes with it, and whoever is reading it
  // ends.
  virtual Task<> RemoveSnapshot(std::string snapshot) = 0;

  // Drives: directories that outlive machines ([a-zA-Z0-9_-]{1,64}), written by one machine at a time (kConflict), and
  // drive snapshots of them under names of their own. Idempotent; kUnsupported for a limit that would not be enforced.
  virtual Task<> CreateDrive(std::string drive, uint64_t max_bytes, Owner owner) = 0;
  // Makes a drive snapshot: a read-only copy of the drive. No machine may be writing to it. Taken as done when
  // `snapshot` exists.
  virtual Task<> SnapshotDrive(std::string drive, std::string snapshot, std::string owner) = 0;
  // Of a drive or a drive snapshot that no machine uses. Not an error when it is gone already.
  virtual Task<> RemoveDrive(std::string name) = 0;
  // Every drive and drive snapshot on disk, in the order of names.
  virtual Task<std::vector<std::string>> ListDrives() = 0;

  // From directories to block devices; the way back leads through machines, because no host reads a filesystem that a
  // guest's kernel wrote. Takes as long as there are files; taken as done when `target` exists. kNoSpace when the files
  // do not fit.
  virtual Task<> SnapshotToBlock(std::string layer, std::string target, uint64_t bytes, std::string owner) = 0;
  // Of a drive that no machine writes to, or a drive snapshot; the target has its size.
  virtual Task<> DriveToBlock(std::string source, std::string target, std::string owner) = 0;
  // The format of a drive or a drive snapshot; nothing while it was never used and may become either.
  virtual Task<std::optional<RootfsFormat>> DriveFormat(std::string name) = 0;
  // The drive `by` takes this one's place and name. No machine may use either.
  virtual Task<> ReplaceDrive(std::string drive, std::string by) = 0;

  // The snapshot stays, without its memory. Not an error when it has none.
  virtual Task<> RemoveMemory(std::string snapshot) = 0;
};

}  // namespace sandbar::engine
