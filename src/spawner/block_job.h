// A block device in the making: ext4 with the files of a tree that guests wrote, for machines of class 3. mke2fs reads
// the tree in a jail of its own: nothing but the tree and the device is there, and the tree cannot be written to.
// Single thread; nothing here waits.
//
//   SB_TRY(auto job, BlockJob::OfSnapshot(host, "snap_a", "snap_a-block", bytes));
//   … the pidfd is readable: job->Finish() …           // the target is there, or is not
#pragma once

#include <memory>
#include <string>

#include "base/fd.h"
#include "base/result.h"
#include "os/child.h"
#include "spawner/host.h"
#include "spawner/job.h"

namespace sandbar::spawner {

class BlockJob : public Job {
 public:
  // The snapshot `target` holds what the layer `source` does, on a device of this size.
  static Result<std::unique_ptr<BlockJob>> OfSnapshot(Host* host, const std::string& source, std::string target,
                                                      uint64_t bytes);
  // The drive `target` holds what the drive or state `source` does, and has its size.
  static Result<std::unique_ptr<BlockJob>> OfDrive(Host* host, const std::string& source, std::string target);
  ~BlockJob() override;

  int pidfd() const override { return child_.pidfd.get(); }
  std::string_view target() const override { return target_; }
  Result<> Finish() override;

 private:
  BlockJob(Host* host, std::string target) : host_(host), target_(std::move(target)) {}
  // `tree`: a directory that holds upper/.
  Result<> Start(const std::string& tree, const std::string& upper, uint64_t bytes);

  Host* host_;
  std::string target_;
  DiskSlot slot_;  // of a snapshot
  Fd upper_;       // where the device is
  std::string half_made_;
  os::Child child_;
  Fd errors_;
};

// What a drive or a state of one is: "block", "dir", or nothing when it was never used and may become either.
std::string DriveFormat(const std::string& path);

}  // namespace sandbar::spawner
