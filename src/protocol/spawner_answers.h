// What the spawner answers, and the event that it sends unasked. A new answer or field goes to the end
// (protocol/codec.h); spawner_messages.cc says how each is written. Values, for any thread.
//
//   if (const auto* usage = std::get_if<UsageResp>(&response.body)) … usage->cpu_ns …
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "protocol/spawner_limits.h"

namespace sandbar::protocol {

struct MachineEntry {
  std::string machine;
  uint8_t state = 0;  // 0 booted, 1 configured, 2 exited
  int32_t pid = 0;
  uint64_t start_time = 0;
  uint8_t engine = kNamespacesEngine;
};
struct OkResp {};
struct EngineEntry {
  uint8_t id = 0;
  std::string name;
  uint8_t isolation_class = 1;
  bool usable = false;
  std::string why_not;     // what is missing and how to get it
  std::string no_nesting;  // why its machines run no containers; empty: they do
};
// Which mechanisms are in force.
struct HelloResp {
  uint32_t version = kOldestSpawnerVersion;  // the one of the request
  std::string instance;
  std::string disk_limit;
  std::string cgroup;
  bool copies_snapshots = false;     // a machine's own layer holds all that the topmost snapshot below it did
  std::vector<EngineEntry> engines;  // every one that is known, usable or not
};
struct ErrorResp {
  int32_t code = 0;  // static_cast<int>(sandbar::Code)
  std::string message;
  int32_t sys_errno = 0;
};
struct BootResp {
  std::string agent_socket;  // path of the agent's unix socket, reachable by the daemon only
  std::string agent_key;     // the key that the agent must show; empty: the agent has none
};
struct ListResp {
  std::vector<MachineEntry> machines;
};
struct UsageResp {
  uint64_t cpu_ns = 0, memory_bytes = 0, memory_peak_bytes = 0, disk_bytes = 0;
  uint32_t pids = 0;
  uint64_t oom_kills = 0;
  uint64_t dropped_packets = 0;
};
struct SnapshotsResp {
  std::vector<std::string> snapshots;  // fewer than kSnapshotsPerPage: the last page
};
struct MemorySnapshotResp {
  uint64_t pause_ms = 0;      // how long the guest stood still
  uint64_t memory_bytes = 0;  // what was written down
};
struct ExitedEvent {
  std::string machine;
  int32_t status = 0;
  bool deadline = false;
};  // tag 0
using SpawnerResponse = std::variant<OkResp, HelloResp, ErrorResp, BootResp, ListResp, UsageResp, ExitedEvent,
                                     SnapshotsResp, MemorySnapshotResp>;

}  // namespace sandbar::protocol
