// Frees the space of removed machines, snapshots and drives, and seals what was published (DiskUpkeep::Tidy). Single
// thread; no call waits.
#pragma once

#include <memory>

#include "base/result.h"
#include "spawner/disk/disk.h"
#include "spawner/jobs/job.h"

namespace sandbar::spawner {

class TidyJob final : public Job {
 public:
  static Result<std::unique_ptr<Job>> Start(JobGroup group, Disk* disk);
  // When Finish was not called, the disk stays untidy and the next job does the work.
  ~TidyJob() override;
  Result<> Finish() override;

 private:
  TidyJob(JobGroup group, Disk* disk) : Job({.kind = JobKind::kTidy}, group), disk_(disk) {}

  Disk* disk_;
  bool finished_ = false;
};

}  // namespace sandbar::spawner
