// The writable copy of a snapshot that a machine begins with, in the making: a process, because the kernel first writes
// out what the snapshot still has in memory, which may be gigabytes. Single thread; nothing here waits.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "spawner/disk/disk.h"
#include "spawner/jobs/job.h"

namespace sandbar::spawner {

class CopyJob final : public Job {
 public:
  // For the machine that has this slot. kNotFound when there is no such snapshot.
  static Result<std::unique_ptr<Job>> Start(JobFacts facts, JobGroup group, Disk* disk, const DiskSlot& slot,
                                            const std::string& snapshot);
  // A copy that nobody took goes. One that the process makes after we have ended is a leftover of the disk.
  ~CopyJob() override;
  Result<> Finish() override;
  // Once, after it has finished well.
  SlotCopy Take() { return std::exchange(copy_, {}); }

 private:
  CopyJob(JobFacts facts, JobGroup group, Disk* disk) : Job(std::move(facts), group), disk_(disk) {}

  Disk* disk_;
  SlotCopy copy_;
};

}  // namespace sandbar::spawner
