// One flattening under way: a process that fills a slot of the disk, which then becomes a layer. Single thread; nothing
// here waits.
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
  // Of the facts' subjects, topmost first, into what it makes.
  static Result<std::unique_ptr<Job>> Start(JobFacts facts, JobGroup group, Disk* disk);
  // A slot that was not filled is a leftover of the disk then.
  ~FlattenJob() override;
  // Publishes the layer, or says why there is none.
  Result<> Finish() override;

 private:
  FlattenJob(JobFacts facts, JobGroup group, Disk* disk, DiskSlot slot)
      : Job(std::move(facts), group), disk_(disk), slot_(std::move(slot)) {}

  Disk* disk_;
  DiskSlot slot_;
};

}  // namespace sandbar::spawner
