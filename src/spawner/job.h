// Work that takes as long as there are files, so a process of its own does it. Single thread; nothing here waits.
#pragma once

#include <string_view>

#include "base/result.h"
#include "spawner/protocol.h"

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
  // For whoever asked, once it is finished.
  virtual Response answer() const { return OkResp{}; }
  // What it makes, when that takes a processor for long: such ones are few at a time, and end.
  virtual std::string_view target() const { return {}; }
  // Whose it is; empty: nobody's.
  virtual std::string_view machine() const { return {}; }
};

}  // namespace sandbar::spawner
