// The handlers of requests that a job does: everything whose time grows with the number of files or bytes.
#include <fcntl.h>

#include <algorithm>

#include "base/log.h"
#include "os/openat.h"
#include "os/process.h"
#include "spawner/disk/drive_dir.h"
#include "spawner/disk/vm_disk.h"
#include "spawner/jobs/block_job.h"
#include "spawner/jobs/copy_job.h"
#include "spawner/jobs/drive_snapshot_job.h"
#include "spawner/jobs/flatten_job.h"
#include "spawner/jobs/scan_job.h"
#include "spawner/jobs/tidy_job.h"
#include "spawner/server/server.h"

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

void Server::StartJob(uint32_t tag, JobFacts facts, const Jobs::Make& make) {
  auto answer = [this, owed = daemon_.Owe(tag)](Job& ended, const Result<>& done) {
    daemon_.ReplyTo(owed, done ? ended.answer() : Response(ToResponse(done.error())));
  };
  if (auto started = jobs_.Start(std::move(facts), make, answer); !started) daemon_.ReplyError(tag, started.error());
}

void Server::OnJobEnd() {
  background_ = true;
  StartCopies();
}

// Starts the copies that wait, the oldest first. Those whose owner has too many under way stay in the queue.
void Server::StartCopies() {
  for (auto it = copies_.begin(); it != copies_.end();) {
    auto found = slots_.find(*it);
    if (found == slots_.end() || !found->second.waits) {
      it = copies_.erase(it);
      continue;
    }
    auto begun = StartCopy(found->second);
    if (!begun && begun.error().code == Code::kTooMany) {
      ++it;
      continue;
    }
    it = copies_.erase(it);
    if (begun) continue;
    found->second.waits.reset();
    Refuse(found->second, begun.error());
  }
}

Result<> Server::StartCopy(Slot& slot) {
  const std::string& snapshot = slot.waits->snapshots.front();
  JobFacts facts{.kind = JobKind::kCopy, .job_owner = slot.waits->owner, .subjects = {snapshot}};
  auto make = [&](JobFacts f, JobGroup group) {
    return CopyJob::Start(std::move(f), group, host_->disk.get(), slot.machine->disk().slot(), snapshot);
  };
  auto then = [this, serial = slot.serial](Job& ended, const Result<>& copied) { OnCopied(serial, ended, copied); };
  return jobs_.Start(std::move(facts), make, then);
}

void Server::OnCopied(uint64_t serial, Job& job, const Result<>& copied) {
  auto it = slots_.find(serial);
  // Destroyed meanwhile: the copy goes with the job.
  if (it == slots_.end() || !it->second.waits) return;
  Slot& slot = it->second;
  const ConfigureReq request = *std::exchange(slot.waits, std::nullopt);
  if (!copied) return Refuse(slot, copied.error());
  auto adopted = slot.machine->disk().Adopt(static_cast<CopyJob&>(job).Take(), request.inherited_bytes);
  if (!adopted) return Refuse(slot, adopted.error());
  log::Info("machine {} on {}", slot.machine->id(), slot.machine->disk().slot().path);
  StartMachine(slot, request);
}

void Server::TidyIfNeeded(int64_t now, int64_t* next) {
  if (stopping_ || !host_->disk->untidy() || jobs_.Any(JobKind::kTidy)) return;
  if (tidy_at_ == 0) tidy_at_ = now + (host_->disk->unsealed() ? kSealDelayMs : kTidyDelayMs);
  if (now < tidy_at_) {
    if (*next == 0 || tidy_at_ < *next) *next = tidy_at_;
    return;
  }
  tidy_at_ = 0;
  auto then = [this](Job&, const Result<>& done) {
    if (!done) tidy_at_ = os::BootTimeMs() + kTidyAgainMs;
    for (Waiting& w : std::exchange(conversions_, {})) {
      if (daemon_.Awaits(w.owed)) Handle(w.owed.tag, w.request);
    }
  };
  auto make = [this](JobFacts, JobGroup group) { return TidyJob::Start(group, host_->disk.get()); };
  if (auto begun = jobs_.Start({.kind = JobKind::kTidy}, make, then); !begun) {
    log::Error("{}", begun.error().message);
    tidy_at_ = now + kTidyAgainMs;
    if (*next == 0 || tidy_at_ < *next) *next = tidy_at_;
  }
}

void Server::Handle(uint32_t tag, const SnapshotDriveReq& r) {
  if (auto valid = DriveDir::Check(r.snapshot); !valid) return daemon_.ReplyError(tag, valid.error());
  if (auto there = host_->disk->DrivePath(r.drive); !there) return daemon_.ReplyError(tag, there.error());
  // Asked again after a lost answer: done is done.
  if (host_->disk->DrivePath(r.snapshot)) return daemon_.Reply(tag, OkResp{});
  if (DriveInUse(r.drive))
    return daemon_.ReplyError(tag, Fail(Code::kConflict, "a machine writes to this drive").error());
  JobFacts facts{.kind = JobKind::kDriveSnapshot, .job_owner = r.owner, .subjects = {r.drive}, .makes = r.snapshot};
  StartJob(tag, std::move(facts), [&](JobFacts f, JobGroup group) {
    return DriveSnapshotJob::Start(std::move(f), group, host_->disk.get(), r.drive, r.snapshot);
  });
}

void Server::Handle(uint32_t tag, const FlattenReq& r) {
  if (!ValidId(r.target, 64)) return daemon_.ReplyError(tag, Fail(Code::kBadRequest, "bad layer name").error());
  if (host_->disk->SnapshotLayer(r.target)) return daemon_.Reply(tag, OkResp{});
  if (auto fits = CheckDirs(*host_, r.layers); !fits) return daemon_.ReplyError(tag, fits.error());
  JobFacts facts{.kind = JobKind::kConvert, .job_owner = r.owner, .subjects = r.layers, .makes = r.target};
  StartJob(tag, std::move(facts),
           [&](JobFacts f, JobGroup group) { return FlattenJob::Start(std::move(f), group, host_->disk.get()); });
}

void Server::Handle(uint32_t tag, const ToBlockReq& r) {
  if (!ValidId(r.target, 64)) return daemon_.ReplyError(tag, Fail(Code::kBadRequest, "bad name").error());
  // Asked again after a lost answer, or for another machine: done is done.
  if (!r.drive && host_->disk->SnapshotLayer(r.target)) return daemon_.Reply(tag, OkResp{});
  if (auto path = host_->disk->DrivePath(r.target); r.drive && path && HasVmDisk(*path))
    return daemon_.Reply(tag, OkResp{});
  // Everything that lies beside the layer would be taken too.
  if (!r.drive && host_->disk->settling(r.source)) return conversions_.push_back({daemon_.Owe(tag), r});
  JobFacts facts{.kind = JobKind::kConvert, .job_owner = r.owner, .subjects = {r.source}, .makes = r.target};
  StartJob(tag, std::move(facts), [&](JobFacts f, JobGroup group) {
    return r.drive ? BlockJob::OfDrive(std::move(f), group, host_)
                   : BlockJob::OfSnapshot(std::move(f), group, host_, r.bytes);
  });
}

// Answered at once, with the pipe at which the layer scanner says what it finds.
void Server::StartScan(uint32_t tag, JobFacts facts, const std::vector<std::string>& words, std::vector<Fd> fds) {
  if (!host_->scanner) return daemon_.ReplyError(tag, Fail(Code::kUnsupported, "started without --scanner").error());
  std::vector<Fd> said(1);
  auto make = [&](JobFacts f, JobGroup group) -> Result<std::unique_ptr<Job>> {
    SB_TRY(auto job, ScanJob::Start(std::move(f), group, host_->scanner.get(), words, std::move(fds)));
    said.front() = job->TakeReport();
    return job;
  };
  if (auto started = jobs_.Start(std::move(facts), make, nullptr); !started)
    return daemon_.ReplyError(tag, NotNow(started.error()));
  daemon_.Reply(tag, OkResp{}, std::move(said));
}

void Server::Handle(uint32_t tag, const ManifestReq& r) {
  std::vector<Fd> fds;
  auto opened = OpenLayers(*host_, {r.snapshot}, {}, fds);
  if (!opened) return daemon_.ReplyError(tag, NotNow(opened.error()));
  JobFacts facts{.kind = r.check ? JobKind::kRead : JobKind::kSeal, .job_owner = r.owner, .subjects = {r.snapshot}};
  // Before there is a new manifest: two scans that write one would spoil it.
  if (!r.check) facts.makes = "the manifest of " + r.snapshot;
  if (auto admitted = jobs_.Admit(facts); !admitted) return daemon_.ReplyError(tag, admitted.error());
  auto manifest = host_->disk->OpenManifest(r.snapshot, !r.check);
  if (!manifest) return daemon_.ReplyError(tag, NotNow(manifest.error()));
  fds.push_back(std::move(*manifest));
  StartScan(tag, std::move(facts), {r.check ? "check" : "manifest"}, std::move(fds));
}

void Server::Handle(uint32_t tag, const DiffReq& r) {
  std::vector<Fd> fds;
  auto opened = CheckDirs(*host_, r.before);
  if (opened) opened = CheckDirs(*host_, r.after);
  if (opened) opened = OpenLayers(*host_, r.before, r.before_image, fds);
  const size_t before = fds.size();
  if (opened) opened = OpenLayers(*host_, r.after, r.after_image, fds);
  if (!opened) return daemon_.ReplyError(tag, opened.error());
  const size_t after = fds.size() - before;
  JobFacts facts{.kind = JobKind::kRead, .job_owner = r.owner, .subjects = r.before};
  facts.subjects.insert(facts.subjects.end(), r.after.begin(), r.after.end());
  StartScan(tag, std::move(facts), {"diff", std::to_string(before), std::to_string(after)}, std::move(fds));
}

void Server::Handle(uint32_t tag, const MemorySnapshotReq& r) {
  Slot* slot = Find(r.machine);
  if (slot == nullptr) return daemon_.ReplyError(tag, Fail(Code::kNotFound, "there is no such machine").error());
  if (jobs_.MachineHas(r.machine))
    return daemon_.ReplyError(tag, Fail(Code::kConflict, "a snapshot of this machine is being made").error());
  JobFacts facts{.kind = JobKind::kMemorySnapshot, .job_owner = slot->machine->job_owner()};
  StartJob(tag, std::move(facts),
           [&](JobFacts f, JobGroup group) { return slot->machine->TakeMemorySnapshot(std::move(f), group, r); });
}

}  // namespace sandbar::spawner
