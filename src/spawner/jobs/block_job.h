// Makes a block device for machines of class 3: ext4 with the files of a tree that guests wrote. mke2fs reads the tree
// in a jail that holds nothing but the tree, read-only, and the device. Single thread; no call waits.
//
//   SB_TRY(auto job, BlockJob::OfSnapshot(facts, group, host, bytes));
//   … the pidfd is readable: job->Finish() …           // the target exists, or an error says why not
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
  // Makes a snapshot with the files of the facts' one subject, on a device of this size.
  static Result<std::unique_ptr<Job>> OfSnapshot(JobFacts facts, JobGroup group, HostResources* host, uint64_t bytes);
  // The same for a drive or a drive snapshot; the device has the drive's size.
  static Result<std::unique_ptr<Job>> OfDrive(JobFacts facts, JobGroup group, HostResources* host);
  ~BlockJob() override;
  Result<> Finish() override;

 private:
  BlockJob(JobFacts facts, JobGroup group, HostResources* host) : Job(std::move(facts), group), host_(host) {}
  // `tree` is the directory around upper/.
  Result<> Start(const std::string& tree, const std::string& upper, uint64_t bytes);

  HostResources* host_;
  DiskSlot slot_;  // of a snapshot
  Fd upper_;       // where the device is
  std::string half_made_;
  Fd status_, errors_;
};

// The format of a drive or a drive snapshot: "block" or "dir"; empty when nobody has used it, so it may become either.
std::string DriveFormat(const std::string& path);

}  // namespace sandbar::spawner
