#include "spawner/jobs/freeze_job.h"

namespace sandbar::spawner {

Result<std::unique_ptr<Job>> FreezeJob::Start(JobFacts facts, JobGroup group, const Disk* disk,
                                              const std::string& drive, const std::string& state) {
  std::unique_ptr<FreezeJob> job(new FreezeJob(std::move(facts), group));
  auto work = [&]() -> Result<std::string> {
    SB_TRYV(disk->FreezeDrive(drive, state));
    return std::string();
  };
  SB_TRYV(job->Fork({disk->drives_fd()}, work));
  return job;
}

Result<> FreezeJob::Finish() {
  auto done = Collect();
  if (!done) return std::unexpected(std::move(done).error().Context("drive"));
  return {};
}

}  // namespace sandbar::spawner
