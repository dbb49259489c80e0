// The handlers of requests that a process of its own works on: flattening and reading snapshots, and taking live ones.
#include <fcntl.h>
#include <sys/epoll.h>

#include <algorithm>

#include "os/openat.h"
#include "os/process.h"
#include "spawner/block_job.h"
#include "spawner/flatten_job.h"
#include "spawner/server.h"
#include "spawner/vm_disk.h"
#include "spawner/walk_job.h"

namespace sandbar::spawner {
namespace {

constexpr uint64_t kJobKey = 6;
constexpr size_t kMaxJobs = 8;
// Making a filesystem can take the square of the number of files, and whoever made the files chose that.
constexpr size_t kMaxConversions = 4;
constexpr int64_t kConversionMs = 540'000;  // less than the daemon waits

Result<> OpenLayers(const Host& host, const std::vector<std::string>& snapshots, const std::vector<std::string>& image,
                    std::vector<Fd>& out) {
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

// What is in a block device, only its own kernel may look at.
Result<> CheckDirs(const Host& host, const std::vector<std::string>& snapshots) {
  for (const std::string& snapshot : snapshots) {
    SB_TRY(std::string path, host.disk->SnapshotLayer(snapshot));
    SB_TRYV(CheckFormat(snapshot, path, false));
  }
  return {};
}

}  // namespace

Result<> Server::AddJob(std::unique_ptr<Job> job, std::optional<Owed> owed) {
  uint64_t serial = next_serial_++;
  SB_TRYV(Watch(job->pidfd(), EPOLLIN, serial << 3 | kJobKey));
  const int64_t until = job->target().empty() ? 0 : os::BootTimeMs() + kConversionMs;
  jobs_.emplace(serial, Running{std::move(job), owed, until});
  return {};
}

void Server::Handle(uint32_t tag, const FlattenReq& r) {
  if (jobs_.size() >= kMaxJobs) return ReplyError(tag, Fail(Code::kTooMany, "too much is being flattened").error());
  if (!ValidId(r.target, 64)) return ReplyError(tag, Fail(Code::kBadRequest, "bad layer name").error());
  if (host_->disk->SnapshotLayer(r.target)) return Reply(tag, OkResp{});
  if (auto fits = CheckDirs(*host_, r.layers); !fits) return ReplyError(tag, fits.error());
  auto job = FlattenJob::Start(host_->disk.get(), r.layers, r.target);
  if (!job) return ReplyError(tag, job.error());
  if (auto added = AddJob(std::move(*job), Owed{tag, connection_}); !added) ReplyError(tag, added.error());
}

void Server::Handle(uint32_t tag, const ToBlockReq& r) {
  if (!ValidId(r.target, 64)) return ReplyError(tag, Fail(Code::kBadRequest, "bad name").error());
  size_t conversions = 0;
  for (const auto& [serial, job] : jobs_) {
    conversions += job.work->target().empty() ? 0 : 1;
    if (job.work->target() == r.target)
      return ReplyError(tag, Fail(Code::kTooMany, "this is being converted already; try again later").error());
  }
  if (jobs_.size() >= kMaxJobs || conversions >= kMaxConversions)
    return ReplyError(tag, Fail(Code::kTooMany, "too much is being converted").error());
  // Asked again after a lost answer, or for another machine: done is done.
  if (!r.drive && host_->disk->SnapshotLayer(r.target)) return Reply(tag, OkResp{});
  if (auto path = host_->disk->DrivePath(r.target); r.drive && path && HasVmDisk(*path)) return Reply(tag, OkResp{});
  auto job =
      r.drive ? BlockJob::OfDrive(host_, r.source, r.target) : BlockJob::OfSnapshot(host_, r.source, r.target, r.bytes);
  if (!job) return ReplyError(tag, job.error());
  if (auto added = AddJob(std::move(*job), Owed{tag, connection_}); !added) ReplyError(tag, added.error());
}

void Server::StartWalk(uint32_t tag, const std::vector<std::string>& words, std::vector<Fd> fds) {
  if (!host_->walker) return ReplyError(tag, Fail(Code::kUnsupported, "started without --walker").error());
  if (jobs_.size() >= kMaxJobs)
    return ReplyError(tag, Fail(Code::kTooMany, "too many snapshots are being read").error());
  auto job = WalkJob::Start(host_->walker.get(), words, std::move(fds));
  if (!job) return ReplyError(tag, job.error());
  std::vector<Fd> said;
  said.push_back((*job)->TakeReport());
  if (auto added = AddJob(std::move(*job), std::nullopt); !added) return ReplyError(tag, added.error());
  Reply(tag, OkResp{}, std::move(said));
}

void Server::Handle(uint32_t tag, const ManifestReq& r) {
  std::vector<Fd> fds;
  auto opened = OpenLayers(*host_, {r.snapshot}, {}, fds);
  if (!opened) return ReplyError(tag, opened.error());
  auto manifest = host_->disk->OpenManifest(r.snapshot, !r.check);
  if (!manifest) return ReplyError(tag, manifest.error());
  fds.push_back(std::move(*manifest));
  StartWalk(tag, {r.check ? "check" : "manifest"}, std::move(fds));
}

void Server::Handle(uint32_t tag, const DiffReq& r) {
  std::vector<Fd> fds;
  auto opened = CheckDirs(*host_, r.before);
  if (opened) opened = CheckDirs(*host_, r.after);
  if (opened) opened = OpenLayers(*host_, r.before, r.before_image, fds);
  const size_t before = fds.size();
  if (opened) opened = OpenLayers(*host_, r.after, r.after_image, fds);
  if (!opened) return ReplyError(tag, opened.error());
  const size_t after = fds.size() - before;
  StartWalk(tag, {"diff", std::to_string(before), std::to_string(after)}, std::move(fds));
}

void Server::Handle(uint32_t tag, const LiveSnapshotReq& r) {
  Slot* slot = Find(r.machine);
  if (slot == nullptr) return ReplyError(tag, Fail(Code::kNotFound, "there is no such machine").error());
  auto same = [&](const auto& job) { return job.second.work->machine() == r.machine; };
  if (std::ranges::any_of(jobs_, same))
    return ReplyError(tag, Fail(Code::kConflict, "a snapshot of this machine is being made").error());
  if (jobs_.size() >= kMaxJobs)
    return ReplyError(tag, Fail(Code::kTooMany, "too many snapshots are being made").error());
  auto job = slot->machine->LiveSnapshot(r);
  if (!job) return ReplyError(tag, job.error());
  if (auto added = AddJob(std::move(*job), Owed{tag, connection_}); !added) ReplyError(tag, added.error());
}

}  // namespace sandbar::spawner
