// One flattening under way: a process that fills a slot of the disk, which then becomes a layer. Single thread; nothing
// here waits.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "spawner/disk.h"
#include "spawner/job.h"

namespace sandbar::spawner {

class FlattenJob final : public Job {
 public:
  static Result<std::unique_ptr<FlattenJob>> Start(Disk* disk, const std::vector<std::string>& layers,
                                                   std::string target);
  // A slot that was not filled is a leftover of the disk then.
  ~FlattenJob() override;

  int pidfd() const override { return process_.get(); }
  // Publishes the layer, or says why there is none.
  Result<> Finish() override;

 private:
  FlattenJob(Disk* disk, DiskSlot slot, std::string target)
      : disk_(disk), slot_(std::move(slot)), target_(std::move(target)) {}
  Result<> Collect();

  Disk* disk_;
  DiskSlot slot_;
  std::string target_;
  Fd process_, report_;
};

}  // namespace sandbar::spawner
