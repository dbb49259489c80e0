// Merges several snapshots into one (flatten.h): a process fills a slot of the disk, which then becomes a snapshot.
// Single thread; no call waits.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "spawner/disk/disk.h"
#include "spawner/jobs/job.h"

namespace sandbar::spawner {

class FlattenJob final : public Job {
 public:
  // Merges the facts' subjects, topmost first, into the snapshot that the facts name as `makes`.
  static Result<std::unique_ptr<Job>> Start(JobFacts facts, JobGroup group, Disk* disk);
  // Removes a slot that was not published.
  ~FlattenJob() override;
  // Publishes the snapshot, or returns why there is none.
  Result<> Finish() override;

 private:
  FlattenJob(JobFacts facts, JobGroup group, Disk* disk, DiskSlot slot)
      : Job(std::move(facts), group), disk_(disk), slot_(std::move(slot)) {}

  Disk* disk_;
  DiskSlot slot_;
};

}  // namespace sandbar::spawner
