// Work that takes as long as there are files, so a process of its own does it. Single thread; nothing here waits.
#pragma once

#include "base/result.h"

namespace sandbar::spawner {

class Job {
 public:
  Job() = default;
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  // Kills a process that still works.
  virtual ~Job() = default;
  virtual int pidfd() const = 0;
  // Call when the pidfd is readable.
  virtual Result<> Finish() = 0;
};

}  // namespace sandbar::spawner
