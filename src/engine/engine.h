// The one contract: an engine boots sandbar-guest in a machine made of orthogonal parts, and hands back a
// reconnectable byte stream to it. A new engine implements this and nothing else; every feature (exec, files, pty)
// is frames on that stream (engine/guest_link.h).
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
#include <string>
#include <vector>

#include "async/task.h"
#include "base/fd.h"

namespace sandbar::engine {

enum class RootfsFormat { kDir, kBlock };
enum class AttachmentKind { kLocal, kTap, kVeth };

// Opaque to everything but images/ and engines: ids, never host paths.
struct Rootfs {
  RootfsFormat format = RootfsFormat::kDir;
  std::vector<std::string> layers;     // content ids, topmost first
  std::string image_digest;            // names the site layer (trust store, resolv.conf, hosts) put on top of the image
  std::vector<std::string> snapshots;  // of earlier machines, topmost first, on top of all that
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

struct BootRequest {
  std::string machine_id;  // [a-z0-9-]{1,40}, unique for ever; chosen and recorded by the caller before Boot
  RootfsFormat format = RootfsFormat::kDir;
  AttachmentKind network = AttachmentKind::kLocal;
  Limits limits;
  std::chrono::milliseconds deadline{0};  // wall clock from now; the supervisor kills then, daemon or not. 0: none yet
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

enum class MachineState { kBooted, kConfigured, kExited };

struct MachineInfo {
  std::string machine_id;
  MachineState state = MachineState::kBooted;
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
  // whatever its network policy. kUnavailable when nothing listens there, kTimeout when it does not accept.
  virtual Task<Fd> Dial(uint16_t port) = 0;
  // Valid once, after Boot or Attach: moves the sockets out.
  virtual NetworkSockets TakeNetwork() = 0;
  virtual Task<> SetLimits(Limits limits) = 0;
  virtual Task<> SetDeadline(std::chrono::milliseconds from_now) = 0;
  virtual Task<Usage> GetUsage() = 0;
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
};

struct EngineInfo {
  std::string name;         // "namespaces"
  int isolation_class = 1;  // 1 namespaces, 2 gVisor, 3 microVM
  AttachmentKind attachment = AttachmentKind::kLocal;
  RootfsFormat format = RootfsFormat::kDir;
  // A machine's own layer holds all that the topmost snapshot below it did: the next snapshot stands in its place, not
  // on top of it.
  bool copies_snapshots = false;
};

class Engine {
 public:
  virtual ~Engine() = default;
  virtual EngineInfo info() const = 0;
  virtual Task<std::unique_ptr<Machine>> Boot(BootRequest request) = 0;
  // Machines of this instance that the supervisor still holds.
  virtual Task<std::vector<MachineInfo>> List() = 0;
  virtual Task<std::unique_ptr<Machine>> Attach(std::string machine_id) = 0;
  // Every snapshot on disk, in the order of names.
  virtual Task<std::vector<std::string>> ListSnapshots() = 0;
  // Makes one layer that shows what these show (topmost first). Takes as long as there are files; the old ones stay.
  // Idempotent: when `target` exists already, it is taken as done.
  virtual Task<> FlattenSnapshots(std::vector<std::string> layers, std::string target) = 0;
  // No machine may run on it. Not an error when it is gone already.
  virtual Task<> RemoveSnapshot(std::string snapshot) = 0;
};

}  // namespace sandbar::engine
