// A state of a drive in the making: a process, because the bytes that are still on their way to the disk may be many.
// Single thread; nothing here waits.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "spawner/disk/disk.h"
#include "spawner/jobs/job.h"

namespace sandbar::spawner {

class DriveSnapshotJob final : public Job {
 public:
  static Result<std::unique_ptr<Job>> Start(JobFacts facts, JobGroup group, const Disk* disk, const std::string& drive,
                                            const std::string& snapshot);
  Result<> Finish() override;

 private:
  using Job::Job;
};

}  // namespace sandbar::spawner
