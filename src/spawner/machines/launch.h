// How an engine starts the first process of a machine, and what else differs between engines in code. Facts that differ
// are in base/engine_table.h; what all engines share (resources, limits, deadline, usage, snapshot, end) is machine.h.
// One object per machine, made at boot. Single thread; no call waits.
//
// Adding an engine:
//   1. base/engine_table.h: a row. The daemon (engine/spawner_client) and the command line read it.
//   2. launch_<engine>.cc beside this file: a class derived from Launch; its line in launch.cc.
//   3. spawner/host_resources.cc: FindEngines tells whether the engine works on this host, or why not. What its
//      machines share (programs, filters, templates) is a member of HostResources.
//   4. spawner/options.h, daemon/config.cc: switches for the operator, and the name in the list of `isolation`.
//      cli/parse.cc has that list for --isolation.
//   5. The machine has to run sandbar-guest: guest/main.cc, guest/vm_init.cc when the guest has a kernel of its own.
//   6. tests/support/spawner runs the spawner's tests on an engine; tests/engines has its suites; docs/engines.md
//      explains it. `make test-engines` runs the behavioural suites on it.
// Nothing else compares names or numbers of engines.
//
//   SB_TRY(auto launch, MakeLaunch(engine));
//   SB_TRY(os::Child child, launch->Start(input, configure));   // returns while the child works
//   … child.status says that it runs …
//   launch->LetGo();
//   … it ended, and its control group is empty …
//   launch->DrivesReleased() && launch->RootReleased()          // else: again later
#pragma once

#include <sched.h>

#include <memory>
#include <string>
#include <vector>

#include "base/engine_table.h"
#include "base/result.h"
#include "os/cgroup.h"
#include "os/child.h"
#include "spawner/disk/memory_file.h"
#include "spawner/host_resources.h"
#include "spawner/machines/machine_facts.h"
#include "spawner/machines/resources.h"
#include "spawner/protocol.h"

namespace sandbar::spawner {

// The pointers are valid during the call to Start only.
struct LaunchInput {
  HostResources* host = nullptr;
  const MachineFacts* facts = nullptr;
  MachineResources* resources = nullptr;
  Limits limits;
  int listener = -1;                // the agent's socket
  const cpu_set_t* cpus = nullptr;  // null: all
};

class Launch {
 public:
  Launch() = default;
  virtual ~Launch() = default;
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;

  // The limits of the control group: those of the guest, and what the engine's own processes need in addition.
  virtual os::CgroupLimits GroupLimits(const Limits& limits) const {
    return {limits.vcpus, limits.memory_bytes, limits.pids};
  }
  // The limit of its disk slot; 0: none.
  virtual uint64_t SlotLimit(const Limits& limits) const { return limits.disk_bytes; }
  // Whether its snapshots hold a block device instead of files.
  virtual bool block() const { return false; }
  // How long the child may take until its status says that the agent runs.
  virtual int64_t StartLimitMs() const { return 20'000; }
  // Starts the machine. When the child ends, the machine has ended: every other process dies with it.
  virtual Result<os::Child> Start(const LaunchInput& input, const ConfigureReq& request) = 0;
  // Reads the status of the child. True: the agent runs. False: not yet.
  virtual Result<bool> ReadStatus(int status) { return os::ReadChildStatus(status); }
  // Closes what only the start needed, whether it succeeded or not. Called after the reply is out, and before the end.
  virtual void LetGo() {}
  // Why the machine ended by itself, in printable characters, for the log. Empty when nothing is known.
  virtual std::string LastWords() { return {}; }
  // What a memory snapshot needs of a running machine. kUnsupported for engines without memory snapshots.
  struct MemorySource {
    int control = -1;
    bool while_running = false;  // the memory can be written while the guest changes it
    MemoryNeeds needs;
  };
  virtual Result<MemorySource> ForMemorySnapshot() const {
    return Fail(Code::kUnsupported, "only microVMs can be kept with their memory");
  }
  // Asked when no process of the machine is left. True: the kernel has unmounted the drives.
  virtual bool DrivesReleased() { return true; }
  // True: everything that the machine wrote has reached its disk slot.
  virtual bool RootReleased() { return true; }
};

Result<std::unique_ptr<Launch>> MakeLaunch(const EngineTraits& engine);
// The network that machines of this engine have.
NetworkKind NetworkOf(const EngineTraits& engine, bool nesting);

std::unique_ptr<Launch> NewNamespacesLaunch();
std::unique_ptr<Launch> NewGvisorLaunch();
std::unique_ptr<Launch> NewMicrovmLaunch();

}  // namespace sandbar::spawner
