// The first process of one machine, from its start until it is reaped. Its death ends every other process of the
// machine. Part of a Machine. Single thread; no call waits.
//
//   MachineProcess process;
//   process.Begin(std::move(child));              // what Launch::Start returned
//   … process.pidfd() is readable …
//   if (auto status = process.Reap()) process.Close();
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <utility>

#include "base/result.h"
#include "os/child.h"

namespace sandbar::spawner {

class MachineProcess {
 public:
  void Begin(os::Child child) { child_ = std::move(child); }
  // Whether it was started and not closed.
  bool open() const { return static_cast<bool>(child_.pidfd); }
  // -1 without a process.
  int pidfd() const { return child_.pidfd.get(); }
  // Says when the agent runs, or why it does not; -1 when that is known.
  int status_fd() const { return child_.status.get(); }
  void CloseStatus() { child_.status.Reset(); }
  // Both stay when the process has ended; 0 without one. The time tells it from a later process with its pid.
  pid_t pid() const { return child_.pid; }
  uint64_t start_time() const { return start_time_; }
  void ReadStartTime();
  // The exit status, once the process has ended. Remove the watches of its descriptors then, and call Close.
  std::optional<int> Reap();
  void Close() { child_.pidfd.Reset(); }
  int exit_status() const { return exit_status_; }
  // Not an error without a process.
  Result<> Kill() const;
  // There will be no process: the machine was killed before it had one.
  void SetKilledUnstarted();

 private:
  os::Child child_;
  uint64_t start_time_ = 0;
  int exit_status_ = 0;
};

}  // namespace sandbar::spawner
