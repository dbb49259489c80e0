// What the daemon may ask of the privileged spawner: typed requests with ids, never paths; fds come back.
// One SOCK_SEQPACKET unix connection (<data>/run/spawner.sock, 0600 for the daemon's uid, SO_PEERCRED checked), one
// packet per message, requests answered in order of completion by `tag`. Event messages have tag 0.
// The encoding is protocol/codec.h; every field is bounded before use on both sides.
//
// The server may find a spawner of another build. It says hello with the newest version that it speaks, and with the
// next older one as long as the spawner answers kUnsupported; all spawners know these answers. The version of the hello
// that is accepted is used from then on.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/result.h"
#include "protocol/versions.h"

namespace sandbar::protocol {

// Version 7: the spawner and the server refuse a message with further fields.
// Version 8: they ignore the fields that they do not know (protocol/codec.h).
inline constexpr uint32_t kOldestSpawnerVersion = 7;
VersionRange SpawnerVersions();
inline constexpr size_t kMaxSpawnerMessage = 64 << 10;
inline constexpr size_t kMaxLayers = 64;
inline constexpr size_t kMaxSnapshotChain = 64;
inline constexpr size_t kSnapshotsPerPage = 500;
inline constexpr size_t kMaxMounts = 4;
inline constexpr size_t kMaxEngines = 8;

// How a machine is kept from the host. The numbers are for the wire; classes are in EngineEntry.
inline constexpr uint8_t kNamespacesEngine = 1, kGvisorEngine = 2, kMicrovmEngine = 3;

struct MachineLimits {
  uint32_t vcpus = 1;
  uint64_t memory_bytes = 0;
  uint32_t pids = 0;
  uint64_t disk_bytes = 0;
};

// Requests
struct HelloReq {
  uint32_t version = kOldestSpawnerVersion;
};
// Makes namespaces, control groups, network and disk. The answer carries descriptors: the TCP listener and the DNS socket.
struct BootReq {
  std::string machine;
  MachineLimits limits;
  int64_t deadline_ms = 0;
  uint8_t engine = kNamespacesEngine;
  bool nesting = false;  // it runs containers
  // Whose disk it writes to, and what that project may have of the store. 0: nobody's yet, and half of the store.
  uint64_t project = 0, project_bytes = 0;
};
struct DriveMount {
  std::string drive;  // writable: a drive; otherwise a drive snapshot
  std::string path;   // absolute, in the machine
  bool writable = false;
  uint32_t uid = 0, gid = 0;  // who owns a drive that is used for the first time, as seen inside
};
struct ConfigureReq {
  std::string machine;
  std::vector<std::string> layers;
  std::string image_digest;
  std::string hostname;
  std::vector<std::string> snapshots;  // topmost first, above the layers
  std::vector<DriveMount> mounts;
  bool memory = false;  // goes on with the memory of the first snapshot
  std::string owner;    // whose it is (as in all requests that have one): who waits for the disk, waits in a share
  uint64_t inherited_bytes = 0;  // what the first snapshot takes of the machine's disk limit
};
struct ListReq {};  // answered when what is ending has ended, or after some seconds without it
struct AttachReq {
  std::string machine;
};  // fds: tcp listener, dns
struct SetLimitsReq {
  std::string machine;
  MachineLimits limits;
  uint64_t inherited_bytes = 0;  // as in ConfigureReq
};
struct SetDeadlineReq {
  std::string machine;
  int64_t deadline_ms = 0;
};  // wall clock from now; 0 clears
struct UsageReq {
  std::string machine;
  bool packets = false;  // count dropped ones too, which costs more than all the rest
};
struct PauseReq {
  std::string machine;
  bool paused = true;
};
struct DestroyReq {
  std::string machine;
  std::string keep_as;  // not empty: what the machine wrote becomes the snapshot of this name
};
struct ListSnapshotsReq {
  std::string after;  // pages in the order of names; empty: from the first
};
struct RemoveSnapshotReq {
  std::string snapshot;
  bool memory_only = false;
};
struct FlattenReq {
  std::vector<std::string> layers;  // topmost first
  std::string target;               // the new layer that shows what they show
  std::string owner;
};
// Work of sandbar-scanner. The fd that comes back is the reading end of what it says (layer_scanner/program.h).
struct ManifestReq {
  std::string snapshot;
  bool check = false;  // compare with the manifest that was written before
  std::string owner;
};
struct DiffReq {
  std::vector<std::string> before, after;              // snapshots, topmost first
  std::vector<std::string> before_image, after_image;  // the layers of the image below
  std::string owner;
};
struct DialReq {
  std::string machine;
  uint32_t port = 0;
  bool ipv6 = false;
};  // fd: connecting to 127.0.0.1:port, or [::1]:port, inside
// Drives and drive snapshots share one space of names.
struct CreateDriveReq {
  std::string drive;
  uint64_t max_bytes = 0;
  uint64_t project = 0, project_bytes = 0;  // as in BootReq; 0: it keeps the one that it has
};  // or changes the limit of one that exists
struct SnapshotDriveReq {
  std::string drive;
  std::string snapshot;  // the read-only copy to make of it
  std::string owner;
};
struct RemoveDriveReq {
  std::string name;
};
struct ListDrivesReq {
  std::string after;
};  // answered like ListSnapshotsReq
// Makes `target`, which holds on a block device what `source` does in a directory.
struct ToBlockReq {
  std::string source, target;
  bool drive = false;  // they are drives or drive snapshots; otherwise snapshots
  uint64_t bytes = 0;  // size of a snapshot's device; a drive has one
  std::string owner;
};
struct DriveFormatReq {
  std::string name;
};  // answered by a list: "dir" or "block"; empty when it may become either
struct ReplaceDriveReq {
  std::string drive;
  std::string by;  // takes its place, and its name is gone
};
// A snapshot of a machine that runs, with its memory. It goes on afterwards, or stands still until it is destroyed.
struct MemorySnapshotReq {
  std::string machine;
  std::string snapshot;
  bool go_on = true;
};
// A machine that was booted for nobody is this project's from now on.
struct AssignReq {
  std::string machine;
  uint64_t project = 0, project_bytes = 0;
};
struct ShutdownReq {};  // destroy every machine, then exit
using SpawnerRequest =
    std::variant<HelloReq, BootReq, ConfigureReq, ListReq, AttachReq, SetLimitsReq, SetDeadlineReq, UsageReq, PauseReq,
                 DestroyReq, DialReq, ShutdownReq, ListSnapshotsReq, RemoveSnapshotReq, FlattenReq, CreateDriveReq,
                 SnapshotDriveReq, RemoveDriveReq, ListDrivesReq, ManifestReq, DiffReq, ToBlockReq, DriveFormatReq,
                 ReplaceDriveReq, MemorySnapshotReq, AssignReq>;

// Answers
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
  std::string agent_key;     // that the agent must say; empty: it was started by us and knows none
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

struct TaggedRequest {
  uint32_t tag = 0;
  SpawnerRequest body;
};
struct TaggedResponse {
  uint32_t tag = 0;
  SpawnerResponse body;
};

std::string Encode(const TaggedRequest& request);
std::string Encode(const TaggedResponse& response);
Result<TaggedRequest> DecodeRequest(std::string_view packet);
Result<TaggedResponse> DecodeResponse(std::string_view packet);

}  // namespace sandbar::protocol
