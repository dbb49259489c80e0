// Work that takes as long as there are files or bytes, so a process of its own does it. Each kind of work is a class:
// what it starts, and what follows when the process has ended. Single thread; nothing here waits.
//
//   SB_TRY(auto job, DriveSnapshotJob::Start({.kind = JobKind::kDriveSnapshot, …}, group, disk, drive, snapshot));
//   … the pidfd is readable: job->Finish() …
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "os/cgroup.h"
#include "spawner/protocol.h"

namespace sandbar::spawner {

enum class JobKind : uint8_t {
  kCopy,            // the writable copy of a snapshot that a machine begins with
  kDriveSnapshot,   // a read-only copy of a drive
  kMemorySnapshot,  // a snapshot of a machine that runs
  kSeal,            // the first scan through a layer, which makes it durable
  kRead,            // other scans: checks, differences
  kConvert,         // another form of a snapshot or a drive
  kMeasure,         // counts the bytes that a running machine still shares with its snapshot
  kTidy,            // what was given up leaves the disk, what was published is sealed
};

struct JobFacts {
  JobKind kind = JobKind::kTidy;
  std::string job_owner;              // whose share of the places it takes; empty: no project's
  std::vector<std::string> subjects;  // snapshots and drives that it works on: it ends when one of them goes
  std::string makes;                  // no two make the same; empty: nothing that has a name
  std::string machine;                // whose snapshot it takes
};

// The control group of one process that reads what guests wrote; null: it needs none. Needed for the start only.
using JobGroup = const os::MachineCgroup*;

class Job {
 public:
  Job(JobFacts facts, JobGroup group) : facts_(std::move(facts)), group_(group) {}
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  virtual ~Job() { Kill(); }

  const JobFacts& facts() const { return facts_; }
  int pidfd() const { return process_.get(); }
  void Kill();
  // Call when the pidfd is readable.
  virtual Result<> Finish() = 0;
  // For whoever asked, once it is finished.
  virtual Response answer() const { return OkResp{}; }

 protected:
  // A process of ours: it has no fds but these, is in the group, and dies with us. What the work returns, or the
  // message of its error, is what Collect returns.
  Result<> Fork(std::vector<int> kept, const std::function<Result<std::string>()>& work);
  Result<std::string> Collect();
  // The files to which a process writes "0" to be in the group.
  Result<std::vector<Fd>> OpenJoin() const;
  // For a process that something else has started.
  void Watch(Fd process) { process_ = std::move(process); }
  // Reaps it: its status. 128 + 9 when it was killed.
  Result<int> Reap();

 private:
  JobFacts facts_;
  JobGroup group_;
  Fd process_, report_;
};

}  // namespace sandbar::spawner
