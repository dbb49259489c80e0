// Ends everything in the machine but the agent: SIGTERM, a grace, SIGKILL, then the file system is written out.
//
// Loop thread; owned by Agent. As PID 1 it signals everything (kill -1); otherwise (tests outside a PID namespace) only
// the commands' own groups. The report goes out after the last Output and Exit, or when the daemon does not take them.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>

#include "guest/commands.h"
#include "guest/connection.h"
#include "guest/loop.h"

namespace sandbar::guest {

class Quiescer {
 public:
  Quiescer(Loop* loop, Commands* commands, Outlet* outlet, bool own_kernel)
      : loop_(loop), commands_(commands), outlet_(outlet), own_kernel_(own_kernel) {}

  void Start(std::chrono::milliseconds grace);
  // Only the files; everything goes on.
  void WriteOut();
  // After every round of reaping: how many ended.
  void OnReaped(uint32_t ended);
  bool OnReapedPid(pid_t pid);  // true: it was our own sync child

 private:
  enum class Phase { kIdle, kTerm, kKill, kSync, kReport };
  void SignalEverything(int signal);
  void Tick();
  bool NothingLeft() const;
  void Kill();
  void Sync();
  void Report();

  Loop* loop_;
  Commands* commands_;
  Outlet* outlet_;
  bool own_kernel_;
  Phase phase_ = Phase::kIdle;
  Clock::time_point until_;
  Clock::time_point hang_up_at_;  // when shells on terminals are told again
  uint32_t killed_ = 0;
  bool clean_ = true;
  pid_t sync_pid_ = 0;
  Timer timer_;
};

}  // namespace sandbar::guest
