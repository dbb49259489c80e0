// Makes the writable copy of a snapshot that a machine begins with. A process does it, because the kernel first writes
// out the snapshot's bytes that are still in memory, which may be gigabytes. Single thread; no call waits.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "spawner/disk/disk.h"
#include "spawner/jobs/job.h"

namespace sandbar::spawner {

class CopyJob final : public Job {
 public:
  // Makes the copy for the machine with this slot. kNotFound when there is no such snapshot.
  static Result<std::unique_ptr<Job>> Start(JobFacts facts, JobGroup group, Disk* disk, const DiskSlot& slot,
                                            const std::string& snapshot);
  // Removes a copy that nobody took. The next start of the disk removes one that the process makes after that.
  ~CopyJob() override;
  Result<> Finish() override;
  // The copy. Call it once, after Finish succeeded.
  SlotCopy Take() { return std::exchange(copy_, {}); }

 private:
  CopyJob(JobFacts facts, JobGroup group, Disk* disk) : Job(std::move(facts), group), disk_(disk) {}

  Disk* disk_;
  SlotCopy copy_;
};

}  // namespace sandbar::spawner
