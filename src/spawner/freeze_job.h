// A state of a drive in the making: a process, because the bytes that are still on their way to the disk may be many.
// Single thread; nothing here waits.
#pragma once

#include <memory>
#include <string>

#include "base/fd.h"
#include "base/result.h"
#include "spawner/disk.h"

namespace sandbar::spawner {

class FreezeJob {
 public:
  static Result<std::unique_ptr<FreezeJob>> Start(const Disk* disk, const std::string& drive, std::string state);
  FreezeJob(const FreezeJob&) = delete;
  FreezeJob& operator=(const FreezeJob&) = delete;
  ~FreezeJob();

  const std::string& state() const { return state_; }
  int pidfd() const { return process_.get(); }
  // Call when the pidfd is readable.
  Result<> Finish();

 private:
  explicit FreezeJob(std::string state) : state_(std::move(state)) {}

  std::string state_;
  Fd process_, report_;
};

}  // namespace sandbar::spawner
