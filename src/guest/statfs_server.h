// The process that answers statfs and fstatfs in a class 1 machine. For the root and the drives it says what the
// sandbox has of them, by the spawner's figures (protocol/disk_figures.h): the kernel would tell about the store, which
// all machines share. For every other filesystem it passes the kernel's answer on. No call is handed back to the
// kernel, because the caller could change its arguments in between.
//
// Forked by the agent (statfs_service.h); one thread; root of the machine and under its filter. The caller's path is
// looked up with the caller's user, capabilities, root and working directory.
#pragma once

#include <linux/seccomp.h>

#include <chrono>

#include "os/machine_init.h"

namespace sandbar::guest {

struct StatfsServerOptions {
  const os::StatfsDuty* duty = nullptr;
  seccomp_notif* call = nullptr;      // the call that is being answered; its id is 0 in between. Shared with the agent
  std::chrono::milliseconds idle{0};  // ends when no call came for so long
};

[[noreturn]] void RunStatfsServer(const StatfsServerOptions& options);

}  // namespace sandbar::guest
