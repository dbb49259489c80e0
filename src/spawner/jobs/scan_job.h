// One run of sandbar-scanner, which reads what guests wrote so that the spawner does not have to. Single thread;
// nothing here waits.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/fd.h"
#include "spawner/jobs/job.h"

namespace sandbar::spawner {

class ScanJob final : public Job {
 public:
  // `program` is an O_PATH fd of it; `fds` become its fds from 4 on.
  static Result<std::unique_ptr<ScanJob>> Start(JobFacts facts, JobGroup group, int program,
                                                const std::vector<std::string>& words, std::vector<Fd> fds);
  Result<> Finish() override;
  // Once: the end of the pipe at which it says what it found.
  Fd TakeReport() { return std::move(said_); }

 private:
  using Job::Job;
  Fd said_;
};

}  // namespace sandbar::spawner
