// How a machine's first process enters its machine. It is started ahead, as the host's root in namespaces of its own,
// and waits there with everything done that needs no image; a second message tells it the rest. So what a new process
// costs is paid before anybody waits for it. It becomes the guest by giving up, step by step: root filesystem, ids,
// system calls, capabilities. Namespaces other than the user namespace belong to the host's user namespace, which is
// joined last: root inside owns nothing but its own processes and files.
//
// This is the side of the process itself; the spawner's side is os/child.h, the messages protocol/machine_init.h. One
// thread.
//
//   auto entered = EnterMachine(control);              // returns in the machine
//   if (!entered) ReportInitError(status, entered.error());
#pragma once

#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "protocol/machine_init.h"

namespace sandbar::os {

using protocol::GuestMount;
using protocol::InitPlan;
using protocol::InitSetup;
using protocol::ProcCover;

// Reads both messages from `control` and does what they say. Returns what InitPlan::keep was, or does not return when
// there is an executable to become. Every descriptor that it made or got besides is still open, close-on-exec.
Result<std::vector<Fd>> EnterMachine(int control);
// To whoever started this process: what went wrong. Closing `status` without it says that the agent runs.
void ReportInitError(int status, const Error& error);

}  // namespace sandbar::os
