// The first process of a machine, as the spawner sees it: PrestartedInit while the process waits for a machine
// (os/machine_init.h), Child once it has one. Used by the spawner's only thread. No call waits, except the destruction
// of a PrestartedInit that never got a machine.
//
//   SB_TRY(PrestartedInit init, PrestartedInit::Start(program, setup));   // returns while it works
//   …
//   SB_TRY(Child child, std::move(init).Enter(plan));
//   … poll child.status …
//   SB_TRY(bool running, ReadChildStatus(child.status.get()));
#pragma once

#include <sys/types.h>

#include "base/fd.h"
#include "base/result.h"
#include "os/machine_init.h"

namespace sandbar::os {

struct Child {
  pid_t pid = 0;
  Fd pidfd;
  Fd status;  // readable when the agent runs or the process has died
};

// Ends with this object, unless it has entered a machine.
class PrestartedInit {
 public:
  PrestartedInit() = default;
  PrestartedInit(PrestartedInit&&) = default;
  PrestartedInit& operator=(PrestartedInit&& other) noexcept;
  ~PrestartedInit() { End(); }

  // `program`: O_PATH of one that calls EnterMachine when it is told to: --enter FD --status FD. It is in the control
  // group before that runs.
  static Result<PrestartedInit> Start(int program, const InitSetup& setup);
  explicit operator bool() const { return static_cast<bool>(child_.pidfd); }
  // False: it has died, and can only be thrown away.
  bool alive() const;
  // Also when it fails there is nothing left to do with this object.
  Result<Child> Enter(const InitPlan& plan) &&;

 private:
  void End();
  Child child_;
  Fd control_;
};

// True: the agent runs. False: not yet. An error names the step that failed.
Result<bool> ReadChildStatus(int status);

}  // namespace sandbar::os
