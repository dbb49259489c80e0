#include "spawner/jobs/copy_job.h"

#include <utility>

namespace sandbar::spawner {

Result<std::unique_ptr<Job>> CopyJob::Start(JobFacts facts, JobGroup group, Disk* disk, const DiskSlot& slot,
                                            const std::string& snapshot) {
  std::unique_ptr<CopyJob> job(new CopyJob(std::move(facts), group, disk));
  SB_TRY(job->copy_, disk->BeginStart(slot, snapshot));
  auto work = [&]() -> Result<std::string> {
    SB_TRYV(MakeStart(job->copy_));
    return std::string();
  };
  SB_TRYV(job->Fork({job->copy_.source.get(), job->copy_.parent.get()}, work));
  return job;
}

CopyJob::~CopyJob() {
  disk_->DropCopy(copy_);
}

Result<> CopyJob::Finish() {
  auto done = Collect();
  if (!done) return std::unexpected(std::move(done).error().Context("copy a snapshot"));
  return {};
}

}  // namespace sandbar::spawner
