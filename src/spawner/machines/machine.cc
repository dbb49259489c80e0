#include "spawner/machines/machine.h"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/ids.h"
#include "base/log.h"
#include "os/openat.h"
#include "os/process.h"
#include "os/unix_socket.h"
#include "protocol/vm_config.h"
#include "spawner/disk/drive_dir.h"
#include "spawner/disk/vm_disk.h"
#include "spawner/jobs/memory_snapshot_job.h"

namespace sandbar::spawner {
namespace {

constexpr uint32_t kMaxVcpus = 256;
constexpr uint64_t kMaxMemory = 1ULL << 46;

}  // namespace

Result<> Machine::CheckLimits(const Limits& l) const {
  if (l.vcpus > kMaxVcpus || l.memory_bytes > kMaxMemory) return Fail(Code::kBadRequest, "limits out of range");
  if (l.disk_bytes != 0 && !host_->options.disk_limits)
    return Fail(Code::kUnsupported, "this server cannot limit a machine's disk ([disk] limit = \"none\")");
  return {};
}

namespace {

// The engine of the request, when it works here.
Result<const EngineTraits*> CheckEngine(const HostResources& host, const BootReq& request) {
  for (const EngineEntry& e : host.engines) {
    if (e.id != request.engine) continue;
    if (!e.usable) return Fail(Code::kUnsupported, "engine " + e.name + " does not work here: " + e.why_not);
    if (request.nesting && !e.no_nesting.empty()) return Fail(Code::kUnsupported, "nesting: " + e.no_nesting);
    return FindEngine(e.name);
  }
  return Fail(Code::kUnsupported, "there is no such engine");
}

}  // namespace

Result<std::unique_ptr<Machine>> Machine::Boot(HostResources* host, ResourcePool* pool, const BootReq& request) {
  if (!ValidId(request.machine, 40)) return Fail(Code::kBadRequest, "bad machine id");
  std::unique_ptr<Machine> m(new Machine(host));
  MachineFacts& facts = m->facts_;
  facts.id = request.machine;
  facts.nesting = request.nesting;
  SB_TRYV(m->CheckLimits(request.limits));
  const DiskOwner owner{request.project, request.project_bytes};
  SB_TRYV(host->disk->CheckSpace(owner, 0));
  SB_TRY(facts.engine, CheckEngine(*host, request));
  const EngineTraits& engine = *facts.engine;
  SB_TRY(m->launch_, MakeLaunch(engine));
  if (engine.agent_has_key) facts.agent_key = NewLabel("", 32);
  ResourcePool::Want want;
  want.net = NetworkOf(engine, request.nesting);
  want.mac = VmMac(facts.agent_key);
  want.nesting = request.nesting && !engine.has_own_kernel;
  want.prestarted_init = engine.prestarts_init && !request.nesting;
  SB_TRY(m->resources_, pool->Take(want));
  auto rest = m->disk_.Begin(owner, m->launch_->block());
  if (rest) rest = m->SetLimits(request.limits, 0);
  if (rest) rest = m->Listen();
  if (!rest) {
    ::unlinkat(host->agents.get(), facts.socket_name().c_str(), 0);
    pool->Discard(std::move(m->resources_));
    return std::unexpected(std::move(rest).error());
  }
  return m;
}

Result<> Machine::Listen() {
  // Made in the machine's network namespace: a socket of the host's would tell its holder about the host's interfaces.
  SB_TRY(Fd home, os::OpenPath("/proc/self/ns/net", O_RDONLY));
  if (::setns(resources_.net.netns.get(), CLONE_NEWNET) != 0) return FailErrno("enter the network namespace");
  auto socket = os::MakeUnixSocket(SOCK_STREAM);
  if (::setns(home.get(), CLONE_NEWNET) != 0) SB_CHECK(!"back in the host's network namespace");
  if (!socket) return std::unexpected(std::move(socket).error());
  SB_TRYV(
      os::BindAndListen(socket->get(), host_->agents.get(), facts_.socket_name(), 0660, 0, host_->options.daemon_gid));
  listener_ = std::move(*socket);
  return {};
}

Result<bool> Machine::NeedsCopy(const ConfigureReq& request) {
  if (state_ != State::kBooted) return Fail(Code::kConflict, "the machine is already configured");
  const bool copies = !request.snapshots.empty() && host_->disk->copies_snapshots();
  if (copies) {
    const std::string& snapshot = request.snapshots.front();
    SB_TRY(std::string layer, host_->disk->SnapshotLayer(snapshot));
    SB_TRYV(CheckFormat(snapshot, layer, launch_->block()));
  }
  job_owner_ = request.owner;
  drives_.clear();
  for (const DriveMount& mount : request.mounts) drives_.push_back({mount.drive, mount.writable});
  return copies;
}

Result<> Machine::Configure(const ConfigureReq& request) {
  if (state_ != State::kBooted) return Fail(Code::kConflict, "the machine is already configured");
  cpus_.Pick(limits_.vcpus);
  const auto cpus = cpus_.set();
  LaunchInput input;
  input.host = host_;
  input.facts = &facts_;
  input.resources = &resources_;
  input.limits = limits_;
  input.listener = listener_.get();
  input.cpus = cpus ? &*cpus : nullptr;
  // What to show if nobody ever gets to measure it.
  const std::array unmeasured = {protocol::DiskFigures{limits_.disk_bytes, limits_.disk_bytes, limits_.disk_bytes}};
  if (resources_.figures) resources_.figures.Write(unmeasured, 0);
  auto child = launch_->Start(input, request);
  if (!child) {
    launch_->LetGo();
    drives_.clear();
    return std::unexpected(std::move(child).error());
  }
  process_.Begin(std::move(*child));
  state_ = State::kStarting;
  return {};
}

void Machine::AfterStart() {
  launch_->LetGo();
  process_.ReadStartTime();
}

Result<bool> Machine::OnStatus() {
  auto status = launch_->ReadStatus(process_.status_fd());
  if (status && !*status) return false;
  process_.CloseStatus();
  if (!status) {
    Kill();
    return std::unexpected(std::move(status).error());
  }
  // The agent has its own copies now; nothing else may keep the namespace or the socket alive.
  listener_.Reset();
  resources_.identity.userns.Reset();
  if (state_ == State::kStarting) state_ = State::kRunning;
  return true;
}

std::optional<int> Machine::OnExit() {
  const auto status = process_.Reap();
  if (!status) return std::nullopt;
  if (state_ != State::kEnding) state_ = State::kExited;
  // Also for machines that are being destroyed: they may have ended by themselves before.
  if (auto words = launch_->LastWords(); !words.empty()) log::Warn("machine {}: {}", facts_.id, words);
  return status;
}

MachineEntry Machine::entry() const {
  uint8_t state = state_ == State::kBooted || state_ == State::kStarting ? 0 : state_ == State::kRunning ? 1 : 2;
  return {facts_.id, state, process_.pid(), process_.start_time(), facts_.engine->id};
}

Result<> Machine::SetLimits(const Limits& limits, uint64_t inherited) {
  SB_TRYV(CheckLimits(limits));
  SB_TRYV(resources_.group->SetLimits(launch_->GroupLimits(limits)));
  SB_TRYV(disk_.SetLimit(host_->options.disk_limits ? launch_->SlotLimit(limits) : 0, inherited));
  limits_ = limits;
  return {};
}

Result<UsageResp> Machine::Usage() const {
  SB_TRY(os::CgroupUsage g, resources_.group->Usage());
  SB_TRY(uint64_t disk_bytes, disk_.Usage());
  return UsageResp{g.cpu_ns, g.memory_bytes, g.memory_peak_bytes, disk_bytes, g.pids, g.oom_kills};
}

namespace {

// `total` 0: there is no limit. It can be more than the limit of the room, which does not count what a snapshot
// brought.
protocol::DiskFigures Figures(const DiskRoom& room, uint64_t total) {
  const uint64_t free = room.limit != 0 ? room.limit - std::min(room.limit, room.held) : room.left;
  return {total != 0 ? total : room.held + room.left, free, room.left};
}

}  // namespace

Result<protocol::DiskFigures> Machine::FiguresOf(const UsedDrive& drive) const {
  if (!drive.writable) {
    // A drive snapshot is as full as a disc: nothing can be written.
    SB_TRY(std::string path, host_->disk->DrivePath(drive.name));
    return protocol::DiskFigures{DriveDir::Size(path), 0, 0};
  }
  SB_TRY(DiskRoom room, host_->disk->DriveRoom(drive.name));
  return Figures(room, room.limit);
}

Result<> Machine::TellFigures() {
  resources_.figures.Answered();
  SB_TRY(DiskRoom room, host_->disk->Room(resources_.disk));
  std::vector<protocol::DiskFigures> figures = {Figures(room, limits_.disk_bytes)};
  for (const UsedDrive& drive : drives_) {
    SB_TRY(protocol::DiskFigures of_drive, FiguresOf(drive));
    figures.push_back(of_drive);
  }
  resources_.figures.Write(figures, os::BootTimeMs());
  return {};
}

Result<> Machine::Pause(bool paused) {
  if (state_ != State::kRunning) return Fail(Code::kStopped, "the machine does not run");
  auto done = resources_.group->Freeze(paused);
  if (done) {
    paused_ = paused;
  } else if (paused) {
    // The daemon takes a machine that could not be paused for a running one, so undo a partial pause.
    if (auto thawed = resources_.group->Freeze(false); !thawed) log::Error("{}: {}", facts_.id, thawed.error().message);
  }
  return done;
}

Result<std::unique_ptr<Job>> Machine::TakeMemorySnapshot(JobFacts facts, JobGroup group,
                                                         const MemorySnapshotReq& request) {
  if (state_ != State::kRunning || paused_) return Fail(Code::kStopped, "the machine does not run");
  SB_TRY(Launch::MemorySource source, launch_->ForMemorySnapshot());
  // Other machines write to the same store: ask for twice the memory.
  SB_TRYV(disk_.CheckSpace(2 * (source.needs.memory_mib << 20)));
  MemorySnapshotPlan plan;
  plan.machine = facts_.id;
  plan.snapshot = request.snapshot;
  plan.while_running = source.while_running;
  plan.go_on = request.go_on;
  plan.control = source.control;
  plan.needs = std::move(source.needs);
  return MemorySnapshotJob::Start(std::move(facts), group, host_->disk.get(), disk_.slot(), std::move(plan));
}

void Machine::Kill() {
  if (auto r = process_.Kill(); !r) log::Error("{}: {}", facts_.id, r.error().message);
  // The death of its first process ends the whole pid namespace; a frozen group takes no signal before it thaws.
  if (paused_) {
    if (auto r = resources_.group->KillAll(); !r) log::Error("{}: {}", facts_.id, r.error().message);
    if (auto r = resources_.group->Freeze(false); !r) log::Error("{}: {}", facts_.id, r.error().message);
    paused_ = false;
  }
}

bool Machine::ExpireUnstarted() {
  if (state_ != State::kBooted) return false;
  state_ = State::kExited;
  process_.SetKilledUnstarted();
  return true;
}

Result<> Machine::BeginDestroy(const std::string& keep_as) {
  if (!keep_as.empty() && !ValidId(keep_as, 64)) return Fail(Code::kBadRequest, "bad snapshot name");
  if (state_ == State::kEnding) {
    if (kept_ && keep_as != keep_as_) return Fail(Code::kConflict, "the machine is ending already");
    keep_as_ = keep_as;
    kept_ = {};
    return {};
  }
  keep_as_ = keep_as;
  Kill();
  resources_.init = {};
  launch_->LetGo();
  disk_.limit_watch().End();
  ::unlinkat(host_->agents.get(), facts_.socket_name().c_str(), 0);
  listener_.Reset();
  state_ = State::kEnding;
  return {};
}

bool Machine::TryFinish() {
  if (process_.open()) return false;
  process_.CloseStatus();
  if (resources_.group) {
    if (auto empty = resources_.group->Empty(); empty && !*empty) {
      if (auto r = resources_.group->KillAll(); !r) log::Error("{}: {}", facts_.id, r.error().message);
      return false;
    }
    if (auto usage = resources_.group->Usage()) {
      final_usage_.cpu_ns = usage->cpu_ns;
      final_usage_.memory_peak_bytes = usage->memory_peak_bytes;
      final_usage_.oom_kills = usage->oom_kills;
    }
    if (auto bytes = disk_.Usage()) final_usage_.disk_bytes = *bytes;
  }
  // The next machine that gets a drive must be its only user.
  if (!launch_->DrivesReleased()) return false;
  if (!keep_as_.empty() && !disk_.slot().name.empty()) {
    // Not before the kernel let go of the upper directory: until then its bytes may still be on their way.
    if (!launch_->RootReleased()) return false;
    if (auto noted = disk_.Remember(); !noted) log::Warn("{}: {}", facts_.id, noted.error().message);
    kept_ = disk_.Publish(keep_as_);
    if (!kept_) {
      log::Error("{}: {}", facts_.id, kept_.error().message);
      return false;
    }
  }
  return true;
}

}  // namespace sandbar::spawner
