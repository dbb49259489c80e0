#include "spawner/jobs/drive_snapshot_job.h"

namespace sandbar::spawner {

Result<std::unique_ptr<Job>> DriveSnapshotJob::Start(JobFacts facts, JobGroup group, const Disk* disk,
                                                     const std::string& drive, const std::string& snapshot) {
  std::unique_ptr<DriveSnapshotJob> job(new DriveSnapshotJob(std::move(facts), group));
  auto work = [&]() -> Result<std::string> {
    SB_TRYV(disk->SnapshotDrive(drive, snapshot));
    return std::string();
  };
  SB_TRYV(job->Fork({disk->drives_fd()}, work));
  return job;
}

Result<> DriveSnapshotJob::Finish() {
  auto done = Collect();
  if (!done) return std::unexpected(std::move(done).error().Context("drive"));
  return {};
}

}  // namespace sandbar::spawner
