// The records of the directory (directory.h), as plain values: what machines share.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "store/record_values.h"

namespace sandbar::store {

// A new Sandbox::id.
std::string NewSandboxId();

// A named record of a project.
struct Sandbox {
  std::string id;       // "sbid_…": of this sandbox alone, for good; another one of the same name has another
  int64_t version = 0;  // 1 for a new row, one more with each write: what an edit was applied to (store/directory.h)
  std::string name, team, project;
  bool v1 = false;  // made through /v1: its name is the session's id
  bool persistent = true;
  Status status = Status::kPending;
  std::string current_session;
  int64_t created_at = 0, updated_at = 0, status_updated_at = 0;
  std::string region = "iad1";
  std::vector<std::string> failover_regions;
  std::string network_id;
  int vcpus = 2;
  int memory_mb = 4096;
  std::string runtime, image, cwd;  // image: name@sha256:…
  int64_t timeout_ms = 300000;
  std::optional<int64_t> idle_timeout_ms;   // stops when nobody used it for so long; absent: never
  std::optional<NetworkPolicyRow> network;  // absent: never set
  std::map<std::string, std::string> env, tags;
  std::vector<PortRoute> routes;
  std::map<std::string, Mount> mounts;  // by absolute path; of the next session
  std::optional<int64_t> snapshot_expiration_ms;
  std::optional<KeepLastSnapshots> keep_last_snapshots;
  std::string current_snapshot;  // what the next session boots from; empty: none yet
  uint64_t total_egress = 0, total_ingress = 0, total_cpu_ms = 0, total_duration_ms = 0;
  IsolationDemand isolation;
  std::string engine;  // of its current session, with its class
  int isolation_class = 0;
  std::string create_digest;  // of the request that made it, so that its repetition can be told from another one
  // A sandbox without a name of its own that nobody used again is removed this long after its end. 0: never removed
  // (sandbox/snapshots/retention.h).
  int64_t collect_after_ms = 0;
};

// What the sessions of a project have used, deleted sandboxes included. Those that still run are not in it.
struct ProjectUsage {
  std::string team, project;
  uint64_t creations = 0;  // machines started: by a create, a fork or a resume
  uint64_t cpu_ms = 0, memory_mb_ms = 0, ingress = 0, egress = 0;
};

// What a stopped session left: a layer on disk, and what it takes to boot on it. A deleted one stays as a tombstone;
// its layer stays too for as long as another one stands on it.
struct Snapshot {
  std::string id, team, project, sandbox, session;
  std::string parent;  // the snapshot its session was booted from; empty: none
  bool deleted = false;
  bool manual = false;
  std::string region;
  uint64_t size_bytes = 0;
  int64_t created_at = 0, updated_at = 0, last_used_at = 0;
  int64_t expiration_ms = 0;  // counted from the last use; 0: never
  std::string runtime, image, cwd, user, home;
  std::string engine, format;  // which engine made it; "dir" | "block": which ones can stand on it
  // "": files only. "asked": with memory, because a caller paused the sandbox. "kept": with memory, because the
  // operator configured it for every stop. The session that continues from the memory uses it up.
  std::string memory;
  bool unclaimed = false;  // of a sandbox that is to be collected: its expiration is short until somebody uses it
  std::string contexts;    // with memory: the interpreters in it, sealed
  uint32_t uid = 1000, gid = 1000;
  std::map<std::string, std::string> image_env;
  std::vector<std::string> image_layers, snapshot_layers;  // topmost first; its own is the first of the second
  // Of all its layers together (see Layer): the last to become durable, the one verified longest ago, the first damage.
  int64_t durable_at = 0, verified_at = 0;
  std::string damage;
  std::optional<int64_t> expires_at() const {
    return expiration_ms == 0 ? std::nullopt : std::optional(last_used_at + expiration_ms);
  }
};

// A volume of a project that sandboxes mount. The rows of unfinished sessions say which session holds it.
struct Drive {
  std::string id;  // "drv_…", also its name on disk
  std::string team, project, name;
  std::string region = "iad1";
  uint64_t max_size_bytes = 0;
  int64_t state = 0;  // the number of the newest drive snapshot; 0: none yet
  bool deleted = false;
  int64_t created_at = 0, updated_at = 0;
};

// An API key. A key that was revoked or has expired stays as a row for a long time: other records may name it.
struct Key {
  std::string id;          // "key_…" ("tok_…": made by a release that had no roles); never another key's
  std::string sha256_hex;  // of the secret, which is shown once and kept nowhere
  std::string name;
  std::string team = "*", project = "*";  // "*": any
  int64_t created_at = 0;
  KeyRole role = KeyRole::kViewer;
  std::optional<int64_t> expires_at, revoked_at;
  std::string made_by = "server";       // the id of the key that asked for it, or "server"
  std::optional<int64_t> last_used_at;  // to the hour
  std::string ends_with;                // of a login's key: the id of the key that approved it; they end together
};

}  // namespace sandbar::store
