// Makes a drive snapshot. A process does it, because many of the drive's bytes may not have reached the disk yet.
// Single thread; no call waits.
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
