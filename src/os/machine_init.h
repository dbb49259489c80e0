// How the first process of a machine enters the machine. The spawner starts the process ahead of time, as the host's
// root in new namespaces. The process does everything that needs no image, and waits. A second message tells it the
// rest. So nobody waits for the start of a process. The process becomes the guest step by step: it changes its root
// filesystem and its ids, loads the system-call filter and drops capabilities. All its namespaces belong to the host's
// user namespace, and it joins the machine's user namespace last. Root inside therefore owns only its own processes and
// files.
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

// Reads both messages from `control` and carries them out. Returns the descriptors of InitPlan::keep, or executes the
// program that the plan names and does not return. All other descriptors that it made or received stay open,
// close-on-exec.
Result<std::vector<Fd>> EnterMachine(int control);
// To whoever started this process: what went wrong. Closing `status` without it says that the agent runs.
void ReportInitError(int status, const Error& error);

}  // namespace sandbar::os
