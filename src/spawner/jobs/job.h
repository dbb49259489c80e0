// A job is work whose time grows with the number of files or bytes, so a process of its own does it. Each kind of job
// is a class: it starts the process, and Finish does what follows when the process has ended. jobs.h runs them.
// Single thread; no call waits.
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
  kMemorySnapshot,  // a snapshot of a running machine, with its memory
  kSeal,            // the first scan through a layer, which makes it durable
  kRead,            // other scans: checks, differences
  kConvert,         // another form of a snapshot or a drive
  kMeasure,         // counts the bytes that a running machine still shares with its snapshot
  kTidy,            // frees the space of what was removed, seals what was published
};

struct JobFacts {
  JobKind kind = JobKind::kTidy;
  std::string job_owner;              // whose share of the places it takes; empty: no project's
  std::vector<std::string> subjects;  // snapshots and drives that it reads: it is killed when one of them is removed
  std::string makes;                  // what it makes: no two jobs make the same; empty: nothing that has a name
  std::string machine;                // of which it takes a snapshot
};

// The control group of the job's process; null: it stays in the spawner's. Only the start needs it.
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
  // The reply to the request, once the job is finished.
  virtual Response answer() const { return OkResp{}; }

 protected:
  // Forks a process that does the work. It has no descriptors but these, is in the group, and dies with the spawner.
  // Collect returns what the work returned, its error included.
  Result<> Fork(std::vector<int> kept, const std::function<Result<std::string>()>& work);
  Result<std::string> Collect();
  // The files to which a process writes "0" to be in the group.
  Result<std::vector<Fd>> OpenJoin() const;
  // For jobs that start their process in another way.
  void Watch(Fd process) { process_ = std::move(process); }
  // Reaps the process and returns its exit status: 128 + 9 when it was killed.
  Result<int> Reap();

 private:
  JobFacts facts_;
  JobGroup group_;
  Fd process_, report_;
};

}  // namespace sandbar::spawner
