// Values that records are made of. The store does not know what they mean; sandbox/ does.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sandbar::store {

enum class Status { kPending, kRunning, kStopping, kStopped, kFailed, kAborted, kSnapshotting };
std::string_view StatusName(Status s);  // the protocol's word
std::optional<Status> StatusFromName(std::string_view name);

// What a key may do: a viewer reads, an operator also runs and changes sandboxes, an admin also manages keys.
enum class KeyRole { kViewer, kOperator, kAdmin };
std::string_view KeyRoleName(KeyRole role);  // "viewer" | "operator" | "admin"
std::optional<KeyRole> KeyRoleFromName(std::string_view name);

struct KeepLastSnapshots {
  int count = 0;
  std::optional<int64_t> expiration_ms;
  bool delete_evicted = true;
};

// A port of a sandbox that the outside may reach, under a name of its own.
struct PortRoute {
  int port = 0;
  std::string subdomain;  // "sb-…", unguessable, never given out twice
  std::string token;      // not empty: whoever asks has to show it
  bool operator==(const PortRoute&) const = default;
};

// A network policy at rest. `mode` and `shown` are what the API may answer; `sealed` is the whole policy, encrypted.
struct NetworkPolicyRow {
  std::string mode;    // "allow-all" | "deny-all" | "custom"
  std::string shown;   // JSON in the protocol's answer form: names of injected headers, never values
  std::string sealed;  // only for "custom"
  bool operator==(const NetworkPolicyRow&) const = default;
};

// A drive that sessions of a sandbox get, by name.
struct Mount {
  std::string drive;
  std::string mode;  // "read-write" | "snapshot" | "read-only" (the older word for it)
  bool operator==(const Mount&) const = default;
};

// A drive that a session has, or had. A session that is not finished holds it.
struct SessionMount {
  std::string path, drive;  // drive: its id
  bool writable = false;
  int64_t state = 0;  // number of a drive snapshot: the one that its end makes (writable), or the one that it mounts
  bool operator==(const SessionMount&) const = default;
};

// What a sandbox demands of every machine that it gets: that, or more.
struct IsolationDemand {
  int min_class = 0;     // 1 to 3; 0: any
  std::string engine;    // empty: any
  bool nesting = false;  // it runs containers
  bool operator==(const IsolationDemand&) const = default;
};

}  // namespace sandbar::store
