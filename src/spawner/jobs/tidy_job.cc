#include "spawner/jobs/tidy_job.h"

namespace sandbar::spawner {

Result<std::unique_ptr<Job>> TidyJob::Start(JobGroup group, Disk* disk) {
  std::unique_ptr<TidyJob> job(new TidyJob(group, disk));
  disk->BeginTidy();
  auto work = [disk]() -> Result<std::string> {
    SB_TRYV(disk->Tidy());
    return std::string();
  };
  SB_TRYV(job->Fork(disk->tidy_fds(), work));
  return job;
}

TidyJob::~TidyJob() {
  Kill();
  if (!finished_) disk_->EndTidy(false);
}

Result<> TidyJob::Finish() {
  auto done = Collect();
  finished_ = true;
  disk_->EndTidy(done.has_value());
  if (!done) return std::unexpected(std::move(done).error().Context("tidy the disk"));
  return {};
}

}  // namespace sandbar::spawner
