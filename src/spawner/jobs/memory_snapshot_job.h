// A snapshot of a running microVM: a process that has QEMU write its memory down while the guest goes on, up to the
// moment in which the guest stands still; then the disk is copied, so that both are of that moment, and the guest goes
// on. Single thread; nothing here waits.
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
  bool while_running = false;  // most of the memory is written down before the guest has to stand still
  bool go_on = true;           // else the guest stays where it is, for its machine to be destroyed
  int control = -1;            // QEMU's control socket
  MemoryNeeds needs;
};

class MemorySnapshotJob final : public Job {
 public:
  // kConflict when the snapshot exists.
  static Result<std::unique_ptr<Job>> Start(JobFacts facts, JobGroup group, Disk* disk, const DiskSlot& slot,
                                            MemorySnapshotPlan plan);
  // What was not published goes.
  ~MemorySnapshotJob() override;

  // Publishes the snapshot, or says why there is none.
  Result<> Finish() override;
  Response answer() const override { return LiveSnapshotResp{pause_ms_, bytes_}; }

 private:
  MemorySnapshotJob(JobFacts facts, JobGroup group, Disk* disk) : Job(std::move(facts), group), disk_(disk) {}

  Disk* disk_;
  bool made_memory_ = false;
  SlotCopy copy_;
  uint64_t pause_ms_ = 0, bytes_ = 0;
};

}  // namespace sandbar::spawner
