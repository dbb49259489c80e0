// The records of the journal (journal.h), as plain values: what runs, and what is on disk, on this machine.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "store/record_values.h"

namespace sandbar::store {

// One machine's run.
struct Session {
  std::string id, sandbox, team, project;
  std::string machine_id;
  Status status = Status::kPending;
  int vcpus = 2;
  int memory_mb = 4096;
  std::string region = "iad1", runtime, image, cwd;
  int64_t timeout_ms = 300000;  // including extensions
  std::optional<NetworkPolicyRow> network;
  int64_t requested_at = 0, created_at = 0, updated_at = 0;
  std::optional<int64_t> started_at, requested_stop_at, stopped_at, aborted_at;
  std::optional<uint64_t> cpu_ms, ingress, egress;  // once stopped
  std::string stop_reason;                          // "", "requested", "timeout", "machine lost: …"
  std::string engine = "namespaces";
  int isolation_class = 1;
  bool nesting = false;
  // Who commands run as and what the image adds to their environment: kept here, because the image may be rebuilt or
  // removed while the machine lives on across restarts of the daemon.
  std::string user, home;
  uint32_t uid = 1000, gid = 1000;
  std::map<std::string, std::string> image_env;
  std::string source_snapshot;  // what it was booted from; empty: the image alone
  // What its root file system is made of below the writable layer: layers of the image and, on top, those of snapshots
  // (topmost first). Kept here because images are rebuilt and snapshots deleted while machines live on them.
  std::vector<std::string> image_layers, snapshot_layers;
  // The snapshot that its stop makes: on record before the machine ends, so that a crash in between loses nothing.
  std::string snapshot;
  bool snapshot_manual = false;
  std::optional<int64_t> snapshot_expiration_ms;  // asked for this one; absent: the sandbox's
  std::string snapshot_memory;                    // whether it has the machine's memory: see Snapshot::memory
  std::vector<SessionMount> mounts;
  // Network bytes counted so far, saved now and then: the counters themselves die with the daemon.
  uint64_t carried_ingress = 0, carried_egress = 0;
};

struct Command {
  std::string id, session, name, cwd;
  std::vector<std::string> args;
  int64_t started_at = 0;
  std::optional<int> exit_code;
  std::optional<int64_t> duration_ms;
  bool timed_out = false, oom_killed = false;
  bool terminal = false;  // its standard streams are a terminal
};

// A machine booted ahead of any sandbox. Recorded before it is booted, destroyed at the next start, never adopted.
struct PoolMember {
  std::string machine_id;
  std::string image;  // name@sha256:…
  int vcpus = 2;
  int64_t created_at = 0;
};

// A layer on disk as it was when its manifest was written.
struct Layer {
  std::string name;
  std::string digest;  // of the manifest
  uint64_t bytes = 0, files = 0;
  int64_t durable_at = 0;   // when all of it was on disk for good; 0: it never was
  int64_t verified_at = 0;  // when it was last found to be as the manifest says
  std::string damage;       // what was found to be wrong; empty: nothing
};

// Something that the owner of a sandbox has to know and that no answer to a call could have said.
struct Notice {
  int64_t at = 0;
  std::string team, project, sandbox, text;
};

}  // namespace sandbar::store
