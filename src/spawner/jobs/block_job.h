// A block device in the making: ext4 with the files of a tree that guests wrote, for machines of class 3. mke2fs reads
// the tree in a jail of its own: nothing but the tree and the device is there, and the tree cannot be written to.
// Single thread; nothing here waits.
//
//   SB_TRY(auto job, BlockJob::OfSnapshot(facts, group, host, bytes));
//   … the pidfd is readable: job->Finish() …           // the target is there, or is not
#pragma once

#include <memory>
#include <string>

#include "base/fd.h"
#include "base/result.h"
#include "spawner/host_resources.h"
#include "spawner/jobs/job.h"

namespace sandbar::spawner {

class BlockJob final : public Job {
 public:
  // The snapshot that it makes holds what the facts' one subject does, on a device of this size.
  static Result<std::unique_ptr<Job>> OfSnapshot(JobFacts facts, JobGroup group, HostResources* host, uint64_t bytes);
  // The same of a drive or a state of one; the device has the drive's size.
  static Result<std::unique_ptr<Job>> OfDrive(JobFacts facts, JobGroup group, HostResources* host);
  ~BlockJob() override;
  Result<> Finish() override;

 private:
  BlockJob(JobFacts facts, JobGroup group, HostResources* host) : Job(std::move(facts), group), host_(host) {}
  // `tree`: a directory that holds upper/.
  Result<> Start(const std::string& tree, const std::string& upper, uint64_t bytes);

  HostResources* host_;
  DiskSlot slot_;  // of a snapshot
  Fd upper_;       // where the device is
  std::string half_made_;
  Fd status_, errors_;
};

// What a drive or a state of one is: "block", "dir", or nothing when it was never used and may become either.
std::string DriveFormat(const std::string& path);

}  // namespace sandbar::spawner
