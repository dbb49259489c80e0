// The agent's part in answering statfs (statfs_server.h): waits for the first call, forks the server, and again when
// calls wait and the server has ended. The agent itself must never call statfs or fstatfs: it would wait for itself.
//
// Loop thread; owned by Agent. No call here waits. An idle machine has no server. Root of the machine can kill or stop
// the server. The service kills a stopped server, and the call that the server was about to answer fails with EINTR.
#pragma once

#include <linux/seccomp.h>
#include <sys/types.h>

#include <optional>

#include "guest/launch.h"
#include "guest/loop.h"
#include "os/machine_init.h"

namespace sandbar::guest {

class StatfsService {
 public:
  StatfsService(Loop* loop, const ChildSetup* setup, std::optional<os::StatfsDuty> duty);
  StatfsService(const StatfsService&) = delete;
  StatfsService& operator=(const StatfsService&) = delete;

  // The machine is stopping: a server ends when no call waits, so that nobody waits for it.
  void EndWhenIdle() { ending_ = true; }
  // Call it at each SIGCHLD. A stopped server would keep its callers waiting, in a sleep that no freezer can end.
  void KillStoppedServer() const;
  // True: it was the server.
  bool OnReaped(pid_t pid, int status);

 private:
  void OnCall();
  void RefuseCall();
  bool MakeShared();

  Loop* loop_;
  const ChildSetup* setup_;
  std::optional<os::StatfsDuty> duty_;
  Watch watch_;                      // off while a server runs
  seccomp_notif* shared_ = nullptr;  // see StatfsServerOptions::call; mapped for good
  pid_t server_ = 0;
  bool ending_ = false;
};

}  // namespace sandbar::guest
