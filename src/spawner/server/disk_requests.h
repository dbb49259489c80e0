// Serves the daemon's requests about snapshots and drives: they concern the disk, and machines only where a drive is in
// use. Work whose time grows with the number of files or bytes (copying, sealing, scanning, converting) is done by
// jobs; renaming, making an empty subvolume and setting a limit are done at once. Also starts the job that tidies the
// disk. Owned by the Server. Single thread; no call waits.
//
//   DiskRequests requests(host, &daemon, &jobs, {.drive_in_use = …, .freed = …});
//   requests.Handle(tag, FlattenReq{…});          // replies, now or later
//   requests.TidyIfNeeded(now, &next);            // at every turn of the loop
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "spawner/host_resources.h"
#include "spawner/jobs/job.h"
#include "spawner/jobs/jobs.h"
#include "spawner/protocol.h"
#include "spawner/server/daemon_connection.h"

namespace sandbar::spawner {

class DiskRequests {
 public:
  struct Hooks {
    // Whether a machine mounts this drive or this drive snapshot.
    std::function<bool(const std::string& name)> drive_in_use;
    // Something was removed: the disk has background work.
    std::function<void()> freed;
  };
  DiskRequests(HostResources* host, DaemonConnection* daemon, Jobs* jobs, Hooks hooks)
      : host_(host), daemon_(daemon), jobs_(jobs), hooks_(std::move(hooks)) {}
  DiskRequests(const DiskRequests&) = delete;
  DiskRequests& operator=(const DiskRequests&) = delete;

  void Handle(uint32_t tag, const ListSnapshotsReq& r);
  void Handle(uint32_t tag, const RemoveSnapshotReq& r);
  void Handle(uint32_t tag, const FlattenReq& r);
  void Handle(uint32_t tag, const ManifestReq& r);
  void Handle(uint32_t tag, const DiffReq& r);
  void Handle(uint32_t tag, const ToBlockReq& r);
  void Handle(uint32_t tag, const CreateDriveReq& r);
  void Handle(uint32_t tag, const SnapshotDriveReq& r);
  void Handle(uint32_t tag, const RemoveDriveReq& r);
  void Handle(uint32_t tag, const ListDrivesReq& r);
  void Handle(uint32_t tag, const DriveFormatReq& r);
  void Handle(uint32_t tag, const ReplaceDriveReq& r);

  // Starts the job that seals what was published and frees what was removed, when there is something to do. Lowers
  // `next` to the time when to call this again; 0: never.
  void TidyIfNeeded(int64_t now, int64_t* next);

 private:
  struct Waiting {
    DaemonConnection::Owed owed;
    ToBlockReq request;
  };
  void StartScan(uint32_t tag, JobFacts facts, const std::vector<std::string>& words, std::vector<Fd> fds);

  HostResources* host_;
  DaemonConnection* daemon_;
  Jobs* jobs_;
  Hooks hooks_;
  std::vector<Waiting> conversions_;  // of snapshots that are still settling
  int64_t tidy_at_ = 0;
};

}  // namespace sandbar::spawner
