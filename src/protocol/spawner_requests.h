// What the daemon may ask of the privileged spawner: requests with ids, never paths. A new request or field goes to the
// end (protocol/codec.h); spawner_messages.cc says how each is written. Values, for any thread.
//
//   TaggedRequest request{tag, UsageReq{.machine = "m1"}};
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "protocol/spawner_limits.h"

namespace sandbar::protocol {

struct MachineLimits {
  uint32_t vcpus = 1;
  uint64_t memory_bytes = 0;
  uint32_t pids = 0;
  uint64_t disk_bytes = 0;
};

struct HelloReq {
  uint32_t version = kOldestSpawnerVersion;
};
// Makes namespaces, control groups, network and disk. The answer carries descriptors: the TCP listener and the DNS
// socket.
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
  bool memory = false;           // goes on with the memory of the first snapshot
  std::string owner;             // whose share of the job places the request takes; the same in all requests
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

}  // namespace sandbar::protocol
