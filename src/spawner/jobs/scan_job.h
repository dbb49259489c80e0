// Runs sandbar-scanner, an unprivileged program that reads files of guests in place of the spawner. Single thread; no
// call waits.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/fd.h"
#include "spawner/jobs/job.h"

namespace sandbar::spawner {

class ScanJob final : public Job {
 public:
  // `program` is an O_PATH fd of sandbar-scanner; `fds` become its descriptors 4, 5, ….
  static Result<std::unique_ptr<ScanJob>> Start(JobFacts facts, JobGroup group, int program,
                                                const std::vector<std::string>& words, std::vector<Fd> fds);
  Result<> Finish() override;
  // The read end of the pipe to which the program writes what it found. Call it once.
  Fd TakeReport() { return std::move(said_); }

 private:
  using Job::Job;
  Fd said_;
};

}  // namespace sandbar::spawner
