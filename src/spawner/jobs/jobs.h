// The jobs that run at the moment. Every job goes through Start, which counts the places of its kind (in all, and for
// one owner), takes a control group where the kind needs one, and watches the process until it ends or its time is up.
// The rules of each kind are one table in jobs.cc. Single thread; no call waits.
//
//   auto make = [&](JobFacts facts, JobGroup group) { return FlattenJob::Start(std::move(facts), group, disk); };
//   SB_TRYV(jobs.Start({.kind = JobKind::kConvert, …}, make, [](Job& job, const Result<>& done) { … }));
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/event_loop.h"
#include "base/result.h"
#include "os/cgroup.h"
#include "spawner/jobs/job.h"
#include "spawner/machines/resources.h"

namespace sandbar::spawner {

class Jobs {
 public:
  // Called once for each job: when it has finished, or when its time is up. In the latter case its process may still be
  // in the kernel, and the job keeps its place.
  using Done = std::function<void(Job&, const Result<>&)>;
  using Make = std::function<Result<std::unique_ptr<Job>>(JobFacts, JobGroup)>;

  // `on_end` is called when a job has ended, after its Done: a place has become free.
  Jobs(EventLoop* loop, ResourcePool* pool, std::function<void()> on_end)
      : loop_(loop), pool_(pool), on_end_(std::move(on_end)) {}
  Jobs(const Jobs&) = delete;
  Jobs& operator=(const Jobs&) = delete;

  // kTooMany: all places of the kind, or those of this owner, are taken, or that very thing is being made.
  Result<> Admit(const JobFacts& facts) const;
  // Admits the job and starts it. `done` may be null.
  Result<> Start(JobFacts facts, const Make& make, Done done);
  bool Any(JobKind kind) const;
  bool MachineHas(const std::string& machine) const;
  bool empty() const { return running_.empty(); }
  // Kills the jobs that work on this snapshot, drive or disk.
  void Cancel(const std::string& subject);
  // Kills the jobs whose time is up. Returns when the time of the next one is up; 0: never.
  int64_t Expire(int64_t now);
  void KillAll();

 private:
  using Group = std::unique_ptr<os::MachineCgroup>;
  struct Running {
    std::unique_ptr<Job> job;
    FdWatch process;  // after the job: the watch goes before the descriptor is closed
    Group group;
    Done done;
    int64_t until = 0;  // 0: as long as it takes
  };
  void OnEnd(uint64_t serial);

  EventLoop* loop_;
  ResourcePool* pool_;
  std::function<void()> on_end_;
  uint64_t next_serial_ = 1;
  std::map<uint64_t, Running> running_;
};

}  // namespace sandbar::spawner
