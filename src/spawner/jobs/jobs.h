// The processes that work for the server at the moment: how many there may be of each kind, in all and of one owner,
// and for how long. Single thread; nothing here waits.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/result.h"
#include "spawner/jobs/job.h"

namespace sandbar::spawner {

class Jobs {
 public:
  // Once for each: when it has finished, or when its time is up. In the latter case its process may still be in the
  // kernel, and goes on counting.
  using Done = std::function<void(Job&, const Result<>&)>;

  // kTooMany: there are enough of the kind, or of this owner's, or that very thing is being made.
  Result<> Admit(const JobFacts& facts) const;
  bool Any(JobKind kind) const;
  bool MachineHas(const std::string& machine) const;
  bool empty() const { return running_.empty(); }
  // `group`: that its process is in, or null.
  void Add(uint64_t serial, std::unique_ptr<Job> job, std::unique_ptr<os::MachineCgroup> group, Done done);
  int pidfd(uint64_t serial) const;
  // Its pidfd is readable. Returns the group, which nobody is in any more.
  std::unique_ptr<os::MachineCgroup> Finish(uint64_t serial);
  // Ends what works on this snapshot or drive.
  void Cancel(const std::string& subject);
  // Ends those whose time is up; returns the next such moment, 0 when there is none.
  int64_t Expire(int64_t now);
  void KillAll();

 private:
  struct Running {
    std::unique_ptr<Job> job;
    std::unique_ptr<os::MachineCgroup> group;
    Done done;
    int64_t until = 0;  // 0: as long as it takes
  };
  std::map<uint64_t, Running> running_;
};

}  // namespace sandbar::spawner
