// gVisor on this host: which runsc, with which flags, and whether it works. A probe at start runs a program in it; its
// result is remembered until the host boots again. Also the jail in which runsc runs, for machines (launch_gvisor.cc)
// and for the probe. Single thread.
//
//   host.gvisor = FindGvisor(host);                       // waits for the probe; before the loop runs
//   if (!host.gvisor.runsc) … host.gvisor.why_not …
#pragma once

#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "os/child.h"
#include "os/jail.h"
#include "spawner/machines/holder.h"
#include "spawner/machines/resources.h"

namespace sandbar::spawner {

struct HostResources;

struct Gvisor {
  Fd runsc;                        // O_PATH; not there when it does not work
  std::vector<std::string> flags;  // the platform and what else this version wants to be told
  std::string why_not;
};

// An OCI mount of a directory of the jail.
struct GvisorBind {
  std::string source, target;
  bool writable = false;
};

struct GvisorJail {
  HostResources* host = nullptr;
  const MachineResources* resources = nullptr;
  int runsc = -1;
  std::vector<std::string> flags;
  int root = -1;  // detached: the guest's root filesystem
  std::vector<os::JailMount> drives;
  std::vector<GvisorBind> binds;
  std::vector<std::string> args;  // of the program in the guest
  std::string hostname;
  Limits limits;
  int listener = -1;
  const cpu_set_t* cpus = nullptr;
  bool probe = false;  // run the program to its end instead of holding a stream to it
};

Result<os::Child> StartGvisorJail(const GvisorJail& jail);

Gvisor FindGvisor(HostResources& host);

}  // namespace sandbar::spawner
