// A machine as the daemon sees it; Engine::Boot and Engine::Attach make one (engine/engine.h). The caller owns it, but
// the machine itself is the spawner's: it goes on when this object is gone, until Destroy or its deadline. All calls
// from the daemon's loop thread.
//
//   co_await m->Configure(rootfs, spec);          // image and spec: the agent runs
//   auto sock = co_await m->Connect();            // speak frames; connect again after a crash
//   auto fd = co_await m->Dial(3000);             // a server that a command started
//   co_await m->Destroy();
#pragma once

#include <boost/asio/local/stream_protocol.hpp>
#include <chrono>
#include <cstdint>
#include <string>

#include "async/task.h"
#include "base/fd.h"
#include "engine/values.h"

namespace sandbar::engine {

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
  // Charges what the machine wrote and will write to this project. For machines that were booted without a project.
  // kQuota as for Boot.
  virtual Task<> Assign(Owner owner) = 0;
  virtual Task<> SetDeadline(std::chrono::milliseconds from_now) = 0;
  virtual Task<Usage> GetUsage() = 0;
  // The number of packets that the machine sent and that were dropped because they are neither TCP nor DNS.
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
  // The key that the agent must show on every connection (OpenGuestLink). Empty: the agent has no key.
  virtual std::string AgentKey() const { return {}; }
  // Takes a snapshot of the running machine: disk and memory of the same moment. With `go_on` the machine then
  // continues. Without it the machine stays paused until Destroy. kUnsupported where EngineInfo::keeps_memory is not
  // set. kConflict when the name is taken.
  virtual Task<MemorySnapshot> SnapshotMemory(std::string snapshot, bool go_on) = 0;
};

}  // namespace sandbar::engine
