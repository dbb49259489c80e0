// How a machine's first process is started: what differs between engines. What they share (resources, limits, deadline,
// usage, snapshot, end) is machine.h. One object per machine, made at boot; single thread; no call here waits.
//
//   SB_TRY(auto launch, MakeLaunch(request.engine));
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

#include "base/result.h"
#include "os/cgroup.h"
#include "os/child.h"
#include "spawner/disk/memory_file.h"
#include "spawner/host_resources.h"
#include "spawner/machines/resources.h"
#include "spawner/protocol.h"

namespace sandbar::spawner {

// Everything outlives the call to Start, not more.
struct LaunchInput {
  HostResources* host = nullptr;
  const std::string* machine = nullptr;
  const std::string* agent_key = nullptr;  // see Machine
  MachineResources* resources = nullptr;
  Limits limits;
  int listener = -1;                // the agent's socket
  const cpu_set_t* cpus = nullptr;  // null: all
  bool nesting = false;             // it runs containers
};

class Launch {
 public:
  Launch() = default;
  virtual ~Launch() = default;
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;

  // What the control group is told, so that the guest gets what was promised: an engine's own processes come on top.
  virtual os::CgroupLimits GroupLimits(const Limits& limits) const {
    return {limits.vcpus, limits.memory_bytes, limits.pids};
  }
  // What its place on disk may grow to; 0: no limit.
  virtual uint64_t SlotLimit(const Limits& limits) const { return limits.disk_bytes; }
  // Whether its snapshots hold a block device instead of files.
  virtual bool block() const { return false; }
  // How long it may take until the child says that it runs.
  virtual int64_t StartLimitMs() const { return 20'000; }
  // The child's end is the machine's end: whatever else was started dies with it.
  virtual Result<os::Child> Start(const LaunchInput& input, const ConfigureReq& request) = 0;
  // True: the agent runs. False: not yet. Of the status that Start's child has.
  virtual Result<bool> ReadStatus(int status) { return os::ReadChildStatus(status); }
  // Closes what only the start needed, whether it succeeded or not: after the answer is out, and before the end.
  virtual void LetGo() {}
  // What it said when it ended by itself; for the log, already made harmless.
  virtual std::string LastWords() { return {}; }
  // While it runs: what it takes to write its memory down. kUnsupported where that cannot be.
  struct MemorySource {
    int control = -1;
    bool while_running = false;  // it can be told which pages have changed since
    MemoryNeeds needs;
  };
  virtual Result<MemorySource> ForMemorySnapshot() const {
    return Fail(Code::kUnsupported, "only microVMs can be kept with their memory");
  }
  // After the end, when no process is left. Nobody else has the drives any more.
  virtual bool DrivesReleased() { return true; }
  // All that the machine wrote has reached its disk slot.
  virtual bool RootReleased() { return true; }
};

// kUnsupported for an engine that is not known.
Result<std::unique_ptr<Launch>> MakeLaunch(uint8_t engine);
// The network that machines of this engine have.
NetKind NetOf(uint8_t engine, bool nesting);

std::unique_ptr<Launch> NamespacesLaunch();
std::unique_ptr<Launch> GvisorLaunch();
std::unique_ptr<Launch> NewMicrovmLaunch();

}  // namespace sandbar::spawner
