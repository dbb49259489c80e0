// An engine for tests of what stands above engines: no isolation, no processes, no root. Machines are objects whose
// agent is scripted (fake_agent.h) but speaks the real frames over a socketpair; networks are loopback sockets.
//
// FakeHost plays the supervisor: it outlives engines, so a test can throw one server away and build the next on the
// same machines. Single loop. Close the host (or destroy every machine) before it dies.
//
//   FakeHost host(ex);
//   auto engine = MakeFakeEngine(&host);
//   host.faults.boot = FakeFault::kFail;     // the next Boot fails
//   host.engines = {{.name = "a"}, {.name = "b", .isolation_class = 3, .usable = false, .why_not = "no KVM"}};
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "support/engine/fake_agent.h"

namespace sandbar::engine {

// What a step does: work, fail with kUnavailable, or never return (until cancelled).
enum class FakeFault { kNone, kFail, kHang };

struct FakeFaults {
  FakeFault boot = FakeFault::kNone;
  FakeFault configure = FakeFault::kNone;
  FakeFault connect = FakeFault::kNone;
  FakeFault set_deadline = FakeFault::kNone;
  FakeFault destroy = FakeFault::kNone;
  FakeFault remove_snapshot = FakeFault::kNone;
  FakeFault remove_memory = FakeFault::kNone;
  FakeFault create_drive = FakeFault::kNone;
  FakeFault snapshot_drive = FakeFault::kNone;
  std::map<std::string, Code> manifest;  // snapshot (empty: any) -> how writing its manifest fails
};

struct FakeMachineState {
  FakeMachineState(const asio::any_io_executor& ex, std::string machine_id)
      : id(std::move(machine_id)), ended(ex), agent(ex) {}
  std::string id, engine;
  bool nesting = false;
  Owner owner;
  MachineState state = MachineState::kBooted;
  Limits limits;
  Rootfs rootfs;
  std::chrono::milliseconds deadline{0};
  Usage usage;
  uint64_t dropped_packets = 0;
  uint16_t dns_port = 0;  // on 127.0.0.1, of the socket that the newest TakeNetwork gave
  bool paused = false;
  std::map<uint16_t, std::function<void(Fd)>> ports;  // servers in the machine: called with each connection
  Event ended;
  FakeAgent agent;
};

class FakeHost {
 public:
  explicit FakeHost(asio::any_io_executor ex) : ex_(std::move(ex)) {}

  FakeFaults faults;
  std::vector<EngineInfo> engines = {{.name = "fake", .isolation_class = 0}};  // what it pretends to have
  int boots = 0;
  std::set<std::string> snapshots;
  std::set<std::string> memories;               // of which snapshots
  std::map<std::string, uint64_t> drives;       // with their snapshots; the limit of each
  std::map<std::string, Owner> owners;          // of drives
  std::map<std::string, RootfsFormat> formats;  // of drives and drive snapshots that were used
  uint64_t layer_bytes = 4096;                  // what a scan finds in every layer
  std::set<std::string> manifests;              // of which snapshots
  std::map<std::string, std::string> damage;    // snapshot -> what a check finds
  int checks = 0;
  std::map<std::string, int> scans;  // snapshot -> how often its manifest was to be written
  bool slow_starts = false;          // Configure does not return as long as this is set
  std::set<std::string> slow_scans;  // owners whose manifests are not finished as long as they are here

  FakeMachineState* Find(const std::string& id);
  std::vector<std::string> ids() const;
  // The machine ends by itself, as when its agent dies or the supervisor's deadline comes.
  asio::awaitable<void> EndMachine(std::string id);
  asio::awaitable<void> Close();

 private:
  friend class FakeMachine;
  friend class FakeEngine;
  Task<> Meet(FakeFault fault, std::string what);
  // Some machine has this drive or drive snapshot.
  bool Uses(const std::string& drive) const;

  asio::any_io_executor ex_;
  std::map<std::string, std::shared_ptr<FakeMachineState>> machines_;  // shared with calls in flight on them
};

std::unique_ptr<Engine> MakeFakeEngine(FakeHost* host);

}  // namespace sandbar::engine
