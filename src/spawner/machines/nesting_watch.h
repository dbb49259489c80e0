// Watches a machine that runs containers (class 0). Its root owns network namespaces and mounts, and can make objects
// there that no control group counts: neighbours, nexthops, bridge entries, terminals. A process of its own counts them
// twice a second and kills the machine when there are too many. That process ends with the machine.
// Single thread; no call here waits longer than a fork takes.
//
//   SB_TRY(NestingWatch watch, NestingWatch::Start(child.pid, child.pidfd.get()));
//   … the machine has ended …
//   if (std::string why = watch.Reason(); !why.empty()) log::Warn("{}", why);
#pragma once

#include <sys/types.h>

#include <string>

#include "base/fd.h"
#include "base/result.h"

namespace sandbar::spawner {

class NestingWatch {
 public:
  NestingWatch() = default;
  // `first`: the machine's first process.
  static Result<NestingWatch> Start(pid_t first, int pidfd);
  // Why the watch killed the machine; empty when it did not.
  std::string Reason();

 private:
  Fd report_;
};

// Settings of the host that its machines share, for a host that allows containers inside: a bigger neighbour table, and
// the one key of /proc/sys/net that every network namespace can switch for all. Settings are only ever raised.
void PrepareHostForNesting();

}  // namespace sandbar::spawner
