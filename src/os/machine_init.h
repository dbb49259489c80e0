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

#include <cstdint>
#include <optional>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "os/statfs_calls.h"
#include "protocol/machine_init.h"

namespace sandbar::os {

using protocol::GuestMount;
using protocol::InitPlan;
using protocol::InitSetup;
using protocol::ProcCover;

// What an agent needs to answer statfs (guest/statfs_service.h).
struct StatfsDuty {
  StatfsCalls calls;
  Fd figures, ask;               // see protocol::FiguresFds
  std::vector<uint64_t> disks;   // the ids of the mounts that the figures are of, in their order
  std::vector<uint64_t> others;  // of the machine's own mounts in memory, whose figures the kernel knows
};

struct EnteredMachine {
  std::vector<Fd> kept;  // InitPlan::keep
  std::optional<StatfsDuty> statfs;
};

// Reads both messages from `control` and carries them out. Executes the program that the plan names, if there is one,
// and does not return then. All other descriptors that it made or received stay open, close-on-exec.
Result<EnteredMachine> EnterMachine(int control);
// To whoever started this process: what went wrong. Closing `status` without it says that the agent runs.
void ReportInitError(int status, const Error& error);

}  // namespace sandbar::os
