// Takes a snapshot of a running microVM with its memory. A process asks QEMU to write the memory to a file while the
// guest runs. Then the guest stands still for a moment, in which the rest of the memory is written and the disk is
// copied, so that both are of that moment. Then the guest goes on. Single thread; no call waits.
#pragma once

#include <memory>
#include <string>

#include "base/fd.h"
#include "base/result.h"
#include "spawner/disk/disk.h"
#include "spawner/disk/memory_file.h"
#include "spawner/jobs/job.h"

namespace sandbar::spawner {

struct MemorySnapshotPlan {
  std::string machine, snapshot;
  bool while_running = false;  // most of the memory is written before the guest stands still
  bool go_on = true;           // false: the guest keeps standing still, and its machine is destroyed next
  int control = -1;            // QEMU's control socket
  MemoryNeeds needs;
};

class MemorySnapshotJob final : public Job {
 public:
  // kConflict when the snapshot exists.
  static Result<std::unique_ptr<Job>> Start(JobFacts facts, JobGroup group, Disk* disk, const DiskSlot& slot,
                                            MemorySnapshotPlan plan);
  // Removes what was not published.
  ~MemorySnapshotJob() override;

  // Publishes the snapshot, or returns why there is none.
  Result<> Finish() override;
  Response answer() const override { return MemorySnapshotResp{pause_ms_, bytes_}; }

 private:
  MemorySnapshotJob(JobFacts facts, JobGroup group, Disk* disk) : Job(std::move(facts), group), disk_(disk) {}

  Disk* disk_;
  bool made_memory_ = false;
  SlotCopy copy_;
  uint64_t pause_ms_ = 0, bytes_ = 0;
};

}  // namespace sandbar::spawner
