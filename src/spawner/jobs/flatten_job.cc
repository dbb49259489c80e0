#include "spawner/jobs/flatten_job.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/log.h"
#include "os/openat.h"
#include "spawner/jobs/flatten.h"

namespace sandbar::spawner {

Result<std::unique_ptr<Job>> FlattenJob::Start(JobFacts facts, JobGroup group, Disk* disk) {
  std::vector<Fd> dirs;
  std::vector<int> kept;
  for (const std::string& layer : facts.subjects) {
    SB_TRY(std::string path, disk->SnapshotLayer(layer));
    SB_TRY(Fd dir, os::OpenPath(path, O_RDONLY | O_DIRECTORY));
    kept.push_back(dir.get());
    dirs.push_back(std::move(dir));
  }
  if (dirs.empty()) return Fail(Code::kBadRequest, "there are no layers to merge");
  SB_TRY(std::string top, disk->SnapshotLayer(facts.subjects.front()));
  SB_TRY(DiskSlot slot, disk->Create());
  std::unique_ptr<FlattenJob> job(new FlattenJob(std::move(facts), group, disk, std::move(slot)));
  SB_TRYV(disk->AssignLike(job->slot_.path, top.substr(0, top.rfind('/'))));
  SB_TRY(Fd upper, os::OpenPath(job->slot_.path + "/upper", O_RDONLY | O_DIRECTORY));
  kept.push_back(upper.get());
  auto work = [&]() -> Result<std::string> {
    SB_TRYV(FlattenLayers(dirs, upper.get()));
    // The layer must be whole before anybody may stand on it.
    if (::syncfs(upper.get()) != 0) return FailErrno("sync");
    return std::string();
  };
  SB_TRYV(job->Fork(std::move(kept), work));
  return job;
}

FlattenJob::~FlattenJob() {
  Kill();
  if (slot_.name.empty()) return;
  if (auto r = disk_->Destroy(slot_); !r) log::Warn("{}", r.error().message);
}

Result<> FlattenJob::Finish() {
  auto done = Collect();
  if (!done) return std::unexpected(std::move(done).error().Context("flatten"));
  SB_TRYV(disk_->Publish(slot_, facts().makes));
  slot_ = {};
  return {};
}

}  // namespace sandbar::spawner
