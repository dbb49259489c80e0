// One machine of the spawner: its life cycle, as a small state machine that the server's loop drives. Its members have
// a job each: MachineFacts (what it is), MachineDisk (slot, owner, limit), MachineProcess (its first process), CpuPins,
// MachineResources, and the Launch of its engine. The server owns it. Single thread; the only call that waits is the
// end of a first process that never got an image.
//
//   booted --Configure--> starting --it entered--> running --exit--> exited
//   any state --BeginDestroy--> ending --TryFinish…--> gone
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "os/netns.h"
#include "spawner/host_resources.h"
#include "spawner/jobs/job.h"
#include "spawner/machines/cpu_pins.h"
#include "spawner/machines/launch.h"
#include "spawner/machines/machine_disk.h"
#include "spawner/machines/machine_facts.h"
#include "spawner/machines/machine_process.h"
#include "spawner/machines/resources.h"
#include "spawner/protocol.h"

namespace sandbar::spawner {

class Machine {
 public:
  enum class State { kBooted, kStarting, kRunning, kExited, kEnding };

  static Result<std::unique_ptr<Machine>> Boot(HostResources* host, ResourcePool* pool, const BootReq& request);
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  const MachineFacts& facts() const { return facts_; }
  const std::string& id() const { return facts_.id; }
  // The machine is being destroyed, and its files were kept if that was asked for: it will be gone soon.
  bool Ending() const { return state_ == State::kEnding && kept_.has_value(); }
  State state() const { return state_; }
  MachineEntry entry() const;
  MachineDisk& disk() { return disk_; }
  const os::MachineNet& net() const { return resources_.net; }
  int64_t start_limit_ms() const { return launch_->StartLimitMs(); }

  // Call it before Configure. True: the server has to make a copy of the request's topmost snapshot first, and call
  // MachineDisk::Adopt. From here on the machine uses the request's drives. kNotFound: there is no such snapshot.
  // kConflict: it has the format of another engine.
  Result<bool> NeedsCopy(const ConfigureReq& request);
  // The request was refused: other machines may use its drives again.
  void LetGoOfDrives() { drives_.clear(); }
  // Mounts, and starts the agent. Whether it runs arrives through process().status_fd() and OnStatus().
  Result<> Configure(const ConfigureReq& request);
  // True: the agent runs; false: ask again.
  Result<bool> OnStatus();
  // Does the part of the start that can wait until the reply is out.
  void AfterStart();
  // The exit status of the process, once, when it has ended. Call CloseProcess then.
  std::optional<int> OnExit();
  void CloseProcess() { process_.Close(); }
  const MachineProcess& process() const { return process_; }

  // The machine mounts this drive or this drive snapshot.
  bool Uses(const std::string& drive) const {
    return std::ranges::any_of(drives_, [&](const UsedDrive& used) { return used.name == drive; });
  }

  // Readable when the machine asks for the figures of its disks; -1: it does not.
  int figures_asked() const { return resources_.figures ? resources_.figures.ask() : -1; }
  Result<> TellFigures();

  // `inherited`: how much of the disk limit the snapshot takes that the machine began with.
  Result<> SetLimits(const Limits& limits, uint64_t inherited);
  Result<UsageResp> Usage() const;
  Result<> Pause(bool paused);
  // Starts the job that takes a snapshot of the running machine with its memory.
  Result<std::unique_ptr<Job>> TakeMemorySnapshot(JobFacts facts, JobGroup group, const MemorySnapshotReq& request);
  // Whose places its jobs take; known from Configure on.
  const std::string& job_owner() const { return job_owner_; }

  // Monotonic milliseconds (os::BootTimeMs); 0: none.
  int64_t deadline = 0;
  bool killed_by_deadline = false;
  void Kill();
  // Ends a machine that has no process yet, so that no exit will be reported. False: it has one.
  bool ExpireUnstarted();

  // With a name, the machine's files become that snapshot when it has ended. kConflict when the machine is ending
  // already with another name. When the snapshot could not be made (kept()), call this again, with any name or none.
  Result<> BeginDestroy(const std::string& keep_as);
  // True when no process is left and the files are kept if that was asked for. The caller discards the resources then.
  bool TryFinish();
  MachineResources TakeResources() { return std::move(resources_); }
  // Valid after TryFinish returned true.
  const UsageResp& final_usage() const { return final_usage_; }
  // Why the snapshot could not be made. Nothing is lost then, and nothing happens until BeginDestroy is called again.
  const Result<>& kept() const { return kept_; }

 private:
  explicit Machine(HostResources* host) : host_(host), disk_(host->disk.get(), &resources_.disk), cpus_(host) {}
  struct UsedDrive {
    std::string name;
    bool writable = false;
  };
  Result<> CheckLimits(const Limits& limits) const;
  Result<protocol::DiskFigures> FiguresOf(const UsedDrive& drive) const;
  Result<> Listen();

  HostResources* host_;
  MachineFacts facts_;
  State state_ = State::kBooted;
  Limits limits_;
  MachineResources resources_;
  MachineDisk disk_;  // uses the slot of the resources
  std::unique_ptr<Launch> launch_;
  Fd listener_;  // the agent's socket, until the agent has it
  MachineProcess process_;
  bool paused_ = false;
  CpuPins cpus_;
  UsageResp final_usage_;
  std::string keep_as_;
  Result<> kept_;
  std::vector<UsedDrive> drives_;  // in the order of the request
  std::string job_owner_;
};

}  // namespace sandbar::spawner
