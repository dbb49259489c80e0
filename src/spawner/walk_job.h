// One run of sandbar-walker, which reads what guests wrote so that the spawner does not have to. Single thread; nothing
// here waits.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/fd.h"
#include "spawner/job.h"

namespace sandbar::spawner {

class WalkJob final : public Job {
 public:
  // `program` is an O_PATH fd of it; `fds` become its fds from 4 on.
  static Result<std::unique_ptr<WalkJob>> Start(int program, const std::vector<std::string>& words,
                                                std::vector<Fd> fds);
  ~WalkJob() override;
  int pidfd() const override { return process_.get(); }
  Result<> Finish() override;
  // Once: the end of the pipe at which it says what it found.
  Fd TakeReport() { return std::move(report_); }

 private:
  WalkJob() = default;
  Fd process_, report_;
};

}  // namespace sandbar::spawner
