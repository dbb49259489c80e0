#include "spawner/server/disk_requests.h"

#include <fcntl.h>

#include <string>
#include <utility>

#include "base/ids.h"
#include "base/log.h"
#include "os/openat.h"
#include "os/process.h"
#include "spawner/disk/drive_dir.h"
#include "spawner/disk/vm_disk.h"
#include "spawner/jobs/block_job.h"
#include "spawner/jobs/drive_snapshot_job.h"
#include "spawner/jobs/flatten_job.h"
#include "spawner/jobs/scan_job.h"
#include "spawner/jobs/tidy_job.h"
#include "spawner/server/answer_by_job.h"

namespace sandbar::spawner {
namespace {

constexpr int64_t kSealDelayMs = 10;      // when whoever stopped a machine has its answer
constexpr int64_t kTidyDelayMs = 200;     // so that one process does the work of many moments
constexpr int64_t kTidyAgainMs = 10'000;  // after one that failed

Result<> OpenLayers(const HostResources& host, const std::vector<std::string>& snapshots,
                    const std::vector<std::string>& image, std::vector<Fd>& out) {
  for (const std::string& snapshot : snapshots) {
    SB_TRY(std::string path, host.disk->SnapshotLayer(snapshot));
    SB_TRY(Fd dir, os::OpenPath(path, O_RDONLY | O_DIRECTORY));
    out.push_back(std::move(dir));
  }
  for (const std::string& layer : image) {
    SB_TRY(std::string path, host.layers->Path(layer));
    SB_TRY(Fd dir, os::OpenPath(path, O_RDONLY | O_DIRECTORY));
    out.push_back(std::move(dir));
  }
  return {};
}

// A scan that could not begin says nothing about what it would have read.
Error NotNow(Error error) {
  if (error.code == Code::kIo) error.code = Code::kUnavailable;
  return error;
}

// No process of the host reads a block device that a guest wrote: refuses snapshots that hold one.
Result<> CheckDirs(const HostResources& host, const std::vector<std::string>& snapshots) {
  for (const std::string& snapshot : snapshots) {
    SB_TRY(std::string path, host.disk->SnapshotLayer(snapshot));
    SB_TRYV(CheckFormat(snapshot, path, false));
  }
  return {};
}

}  // namespace

void DiskRequests::Handle(uint32_t tag, const ListSnapshotsReq& r) {
  auto names = host_->disk->ListSnapshots(r.after, kSnapshotsPerPage);
  if (!names) return daemon_->ReplyError(tag, names.error());
  daemon_->Reply(tag, SnapshotsResp{std::move(*names)});
}

void DiskRequests::Handle(uint32_t tag, const RemoveSnapshotReq& r) {
  // One that is not there is gone, which is what was asked for.
  if (!host_->disk->SnapshotLayer(r.snapshot)) return daemon_->Reply(tag, OkResp{});
  if (r.memory_only) {
    host_->disk->RemoveMemory(r.snapshot);
    return daemon_->Reply(tag, OkResp{});
  }
  jobs_->Cancel(r.snapshot);
  if (auto removed = host_->disk->RemoveSnapshot(r.snapshot); !removed)
    return daemon_->ReplyError(tag, removed.error());
  hooks_.freed();
  daemon_->Reply(tag, OkResp{});
}

void DiskRequests::Handle(uint32_t tag, const FlattenReq& r) {
  if (!ValidId(r.target, 64)) return daemon_->ReplyError(tag, Fail(Code::kBadRequest, "bad layer name").error());
  if (host_->disk->SnapshotLayer(r.target)) return daemon_->Reply(tag, OkResp{});
  if (auto fits = CheckDirs(*host_, r.layers); !fits) return daemon_->ReplyError(tag, fits.error());
  JobFacts facts{.kind = JobKind::kConvert, .job_owner = r.owner, .subjects = r.layers, .makes = r.target};
  AnswerByJob(daemon_, jobs_, tag, std::move(facts),
              [&](JobFacts f, JobGroup group) { return FlattenJob::Start(std::move(f), group, host_->disk.get()); });
}

// Answered at once, with the pipe at which the layer scanner says what it finds.
void DiskRequests::StartScan(uint32_t tag, JobFacts facts, const std::vector<std::string>& words, std::vector<Fd> fds) {
  if (!host_->scanner) return daemon_->ReplyError(tag, Fail(Code::kUnsupported, "started without --scanner").error());
  std::vector<Fd> said(1);
  auto make = [&](JobFacts f, JobGroup group) -> Result<std::unique_ptr<Job>> {
    SB_TRY(auto job, ScanJob::Start(std::move(f), group, host_->scanner.get(), words, std::move(fds)));
    said.front() = job->TakeReport();
    return job;
  };
  if (auto started = jobs_->Start(std::move(facts), make, nullptr); !started)
    return daemon_->ReplyError(tag, NotNow(started.error()));
  daemon_->Reply(tag, OkResp{}, std::move(said));
}

void DiskRequests::Handle(uint32_t tag, const ManifestReq& r) {
  std::vector<Fd> fds;
  auto opened = OpenLayers(*host_, {r.snapshot}, {}, fds);
  if (!opened) return daemon_->ReplyError(tag, NotNow(opened.error()));
  JobFacts facts{.kind = r.check ? JobKind::kRead : JobKind::kSeal, .job_owner = r.owner, .subjects = {r.snapshot}};
  // Before there is a new manifest: two scans that write one would spoil it.
  if (!r.check) facts.makes = "the manifest of " + r.snapshot;
  if (auto admitted = jobs_->Admit(facts); !admitted) return daemon_->ReplyError(tag, admitted.error());
  auto manifest = host_->disk->OpenManifest(r.snapshot, !r.check);
  if (!manifest) return daemon_->ReplyError(tag, NotNow(manifest.error()));
  fds.push_back(std::move(*manifest));
  StartScan(tag, std::move(facts), {r.check ? "check" : "manifest"}, std::move(fds));
}

void DiskRequests::Handle(uint32_t tag, const DiffReq& r) {
  std::vector<Fd> fds;
  auto opened = CheckDirs(*host_, r.before);
  if (opened) opened = CheckDirs(*host_, r.after);
  if (opened) opened = OpenLayers(*host_, r.before, r.before_image, fds);
  const size_t before = fds.size();
  if (opened) opened = OpenLayers(*host_, r.after, r.after_image, fds);
  if (!opened) return daemon_->ReplyError(tag, opened.error());
  const size_t after = fds.size() - before;
  JobFacts facts{.kind = JobKind::kRead, .job_owner = r.owner, .subjects = r.before};
  facts.subjects.insert(facts.subjects.end(), r.after.begin(), r.after.end());
  StartScan(tag, std::move(facts), {"diff", std::to_string(before), std::to_string(after)}, std::move(fds));
}

void DiskRequests::Handle(uint32_t tag, const ToBlockReq& r) {
  if (!ValidId(r.target, 64)) return daemon_->ReplyError(tag, Fail(Code::kBadRequest, "bad name").error());
  // Asked again after a lost answer, or for another machine: done is done.
  if (!r.drive && host_->disk->SnapshotLayer(r.target)) return daemon_->Reply(tag, OkResp{});
  if (auto path = host_->disk->DrivePath(r.target); r.drive && path && HasVmDisk(*path))
    return daemon_->Reply(tag, OkResp{});
  // Everything that lies beside the layer would be taken too.
  if (!r.drive && host_->disk->settling(r.source)) return conversions_.push_back({daemon_->Owe(tag), r});
  JobFacts facts{.kind = JobKind::kConvert, .job_owner = r.owner, .subjects = {r.source}, .makes = r.target};
  AnswerByJob(daemon_, jobs_, tag, std::move(facts), [&](JobFacts f, JobGroup group) {
    return r.drive ? BlockJob::OfDrive(std::move(f), group, host_)
                   : BlockJob::OfSnapshot(std::move(f), group, host_, r.bytes);
  });
}

void DiskRequests::Handle(uint32_t tag, const CreateDriveReq& r) {
  const DiskOwner owner{r.project, r.project_bytes};
  auto made = host_->disk->DrivePath(r.drive) ? Result<>{} : host_->disk->CheckSpace(owner, 0);
  if (made) made = host_->disk->CreateDrive(r.drive, r.max_bytes, owner);
  if (!made) return daemon_->ReplyError(tag, made.error());
  daemon_->Reply(tag, OkResp{});
}

void DiskRequests::Handle(uint32_t tag, const SnapshotDriveReq& r) {
  if (auto valid = DriveDir::Check(r.snapshot); !valid) return daemon_->ReplyError(tag, valid.error());
  if (auto there = host_->disk->DrivePath(r.drive); !there) return daemon_->ReplyError(tag, there.error());
  // Asked again after a lost answer: done is done.
  if (host_->disk->DrivePath(r.snapshot)) return daemon_->Reply(tag, OkResp{});
  if (hooks_.drive_in_use(r.drive))
    return daemon_->ReplyError(tag, Fail(Code::kConflict, "a machine writes to this drive").error());
  JobFacts facts{.kind = JobKind::kDriveSnapshot, .job_owner = r.owner, .subjects = {r.drive}, .makes = r.snapshot};
  AnswerByJob(daemon_, jobs_, tag, std::move(facts), [&](JobFacts f, JobGroup group) {
    return DriveSnapshotJob::Start(std::move(f), group, host_->disk.get(), r.drive, r.snapshot);
  });
}

void DiskRequests::Handle(uint32_t tag, const RemoveDriveReq& r) {
  if (!host_->disk->DrivePath(r.name)) return daemon_->Reply(tag, OkResp{});
  if (hooks_.drive_in_use(r.name))
    return daemon_->ReplyError(tag, Fail(Code::kConflict, "a machine uses this drive").error());
  jobs_->Cancel(r.name);
  if (auto removed = host_->disk->RemoveDrive(r.name); !removed) return daemon_->ReplyError(tag, removed.error());
  hooks_.freed();
  daemon_->Reply(tag, OkResp{});
}

void DiskRequests::Handle(uint32_t tag, const ListDrivesReq& r) {
  auto names = host_->disk->ListDrives(r.after, kSnapshotsPerPage);
  if (!names) return daemon_->ReplyError(tag, names.error());
  daemon_->Reply(tag, SnapshotsResp{std::move(*names)});
}

void DiskRequests::Handle(uint32_t tag, const DriveFormatReq& r) {
  auto path = host_->disk->DrivePath(r.name);
  if (!path) return daemon_->ReplyError(tag, path.error());
  daemon_->Reply(tag, SnapshotsResp{{DriveFormat(*path)}});
}

void DiskRequests::Handle(uint32_t tag, const ReplaceDriveReq& r) {
  for (const std::string& name : {r.drive, r.by}) {
    if (auto there = host_->disk->DrivePath(name); !there) return daemon_->ReplyError(tag, there.error());
    if (hooks_.drive_in_use(name))
      return daemon_->ReplyError(tag, Fail(Code::kConflict, "a machine uses drive " + name).error());
  }
  if (auto done = host_->disk->ReplaceDrive(r.drive, r.by); !done) return daemon_->ReplyError(tag, done.error());
  hooks_.freed();
  daemon_->Reply(tag, OkResp{});
}

void DiskRequests::TidyIfNeeded(int64_t now, int64_t* next) {
  if (!host_->disk->untidy() || jobs_->Any(JobKind::kTidy)) return;
  if (tidy_at_ == 0) tidy_at_ = now + (host_->disk->unsealed() ? kSealDelayMs : kTidyDelayMs);
  if (now < tidy_at_) {
    if (*next == 0 || tidy_at_ < *next) *next = tidy_at_;
    return;
  }
  tidy_at_ = 0;
  auto then = [this](Job&, const Result<>& done) {
    if (!done) tidy_at_ = os::BootTimeMs() + kTidyAgainMs;
    for (Waiting& w : std::exchange(conversions_, {})) {
      if (daemon_->Awaits(w.owed)) Handle(w.owed.tag, w.request);
    }
  };
  auto make = [this](JobFacts, JobGroup group) { return TidyJob::Start(group, host_->disk.get()); };
  if (auto begun = jobs_->Start({.kind = JobKind::kTidy}, make, then); !begun) {
    log::Error("{}", begun.error().message);
    tidy_at_ = now + kTidyAgainMs;
    if (*next == 0 || tidy_at_ < *next) *next = tidy_at_;
  }
}

}  // namespace sandbar::spawner
