#include "spawner/machine.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <span>

#include "base/log.h"
#include "os/machine_files.h"
#include "os/mounts.h"
#include "os/openat.h"
#include "os/overlay.h"
#include "os/process.h"
#include "os/unix_socket.h"

namespace sandbar::spawner {
namespace {

constexpr uint32_t kMaxVcpus = 256;
constexpr uint64_t kMaxMemory = 1ULL << 46;
constexpr int kTtyGroup = 5;

std::string In(const char* name) {
  return std::string(kMountDir) + "/" + name;
}

os::CgroupLimits ToCgroup(const Limits& l) {
  return {l.vcpus, l.memory_bytes, l.pids};
}

// Everything that the plan points to. The plan is read by the child from its copy of this memory.
struct Preparation {
  std::vector<Fd> join, command_join;
  Fd root, dev, pts, shm, sys;
  std::string mount_point = In("mp");
  std::vector<std::string> cover_sources;
  std::vector<os::ProcCover> covers;
  std::string hostname;
  cpu_set_t cpus{};
  std::vector<int> join_fds, keep;
  std::string join_list;
  std::array<const char*, 6> argv{};
  sock_fprog filter{};
};

void AddCovers(Preparation& p, const std::string& size_dir) {
  constexpr std::array<const char*, 5> kSized = {"cpuinfo", "meminfo", "stat", "loadavg", "cmdline"};
  p.cover_sources.reserve(kSized.size() + 2);
  for (const char* name : kSized) {
    p.cover_sources.push_back(size_dir + "/proc/" + name);
    p.covers.push_back({p.cover_sources.back().c_str(), name});
  }
  p.cover_sources.push_back(In("ro/empty"));
  for (const char* name : os::MaskedProcFiles()) p.covers.push_back({p.cover_sources.back().c_str(), name});
  p.cover_sources.push_back(In("ro/nothing"));
  for (const char* name : os::MaskedProcDirs()) p.covers.push_back({p.cover_sources.back().c_str(), name});
}

Result<> MakeMounts(Preparation& p, const Host& host, const Identity& identity, const Limits& limits) {
  std::string base = std::to_string(identity.lease.base());
  SB_TRY(p.dev, os::CloneTree(AT_FDCWD, In("dev")));
  // Device nodes look like root's inside; kernels before 6.3 cannot and show them as nobody's, which harms nothing.
  if (auto mapped = os::MapIds(p.dev.get(), identity.userns.get()); !mapped && os::KernelAtLeast(6, 3))
    return std::unexpected(std::move(mapped).error().Context("/dev"));
  std::vector<os::MountOption> pts = {{"ptmxmode", "0666"},
                                      {"mode", "0620"},
                                      {"gid", std::to_string(identity.lease.base() + kTtyGroup)},
                                      // The host has one pool of terminals for everybody.
                                      {"max", "256"},
                                      {"newinstance", "", true}};
  SB_TRY(p.pts, os::NewMount("devpts", pts, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC));
  uint64_t shm_bytes =
      limits.memory_bytes == 0 ? 64ULL << 20 : std::max<uint64_t>(limits.memory_bytes / 2, 16ULL << 20);
  std::vector<os::MountOption> shm = {
      {"size", std::to_string(shm_bytes)}, {"mode", "1777"}, {"uid", base}, {"gid", base}};
  SB_TRY(p.shm, os::NewMount("tmpfs", shm, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV));
  SB_TRY(std::string size_dir, os::EnsureSizeTemplate(In("sizes"), std::max(limits.vcpus, 1U), limits.memory_bytes));
  // The template's directory seen through the read-only view.
  std::string view = In("ro") + size_dir.substr(std::string(kMountDir).size());
  SB_TRY(p.sys, os::CloneTree(AT_FDCWD, view + "/sys"));
  AddCovers(p, view);
  p.filter.len = static_cast<unsigned short>(host.filter.size());
  p.filter.filter = const_cast<sock_filter*>(host.filter.data());
  return {};
}

}  // namespace

Machine::~Machine() {
  for (size_t i : pinned_) --host_->cpu_use[i];
  if (root_watch_) host_->unmounts->Forget(*root_watch_);
}

Result<> Machine::CheckLimits(const Limits& l) const {
  if (l.vcpus > kMaxVcpus || l.memory_bytes > kMaxMemory) return Fail(Code::kBadRequest, "limits out of range");
  if (l.disk_bytes != 0 && !host_->options.disk_limits)
    return Fail(Code::kUnsupported, "this server cannot limit a machine's disk (--disk-limit none)");
  return {};
}

Result<std::unique_ptr<Machine>> Machine::Boot(Host* host, PartPool* pool, const BootReq& request) {
  if (!ValidId(request.machine, 40)) return Fail(Code::kBadRequest, "bad machine id");
  std::unique_ptr<Machine> m(new Machine(host, request.machine));
  SB_TRYV(m->CheckLimits(request.limits));
  SB_TRY(m->parts_, pool->Take());
  auto rest = m->SetLimits(request.limits);
  if (rest) rest = m->Listen();
  if (!rest) {
    ::unlinkat(host->agents.get(), m->socket_name().c_str(), 0);
    DiscardParts(*host, m->parts_);
    return std::unexpected(std::move(rest).error());
  }
  return m;
}

Result<> Machine::Listen() {
  // Made in the machine's network namespace: a socket of the host's would tell its holder about the host's interfaces.
  SB_TRY(Fd home, os::OpenPath("/proc/self/ns/net", O_RDONLY));
  if (::setns(netns(), CLONE_NEWNET) != 0) return FailErrno("enter the network namespace");
  auto socket = os::MakeUnixSocket(SOCK_STREAM);
  if (::setns(home.get(), CLONE_NEWNET) != 0) SB_CHECK(!"back in the host's network namespace");
  if (!socket) return std::unexpected(std::move(socket).error());
  SB_TRYV(os::BindAndListen(socket->get(), host_->agents.get(), socket_name(), 0660, 0, host_->options.daemon_gid));
  listener_ = std::move(*socket);
  return {};
}

Result<Fd> Machine::MountRoot(const std::vector<std::string>& layers) {
  os::OverlaySpec spec;
  for (const auto& path : layers) {
    SB_TRY(Fd layer, os::CloneTree(AT_FDCWD, path));
    SB_TRYV(os::MapIds(layer.get(), parts_.identity.userns.get()));
    spec.layers.push_back(layer.get());
    layer_mounts_.push_back(std::move(layer));
  }
  SB_TRY(Fd writable, os::CloneTree(AT_FDCWD, parts_.disk.path));
  SB_TRYV(os::MapIds(writable.get(), parts_.identity.userns.get()));
  spec.writable = writable.get();
  layer_mounts_.push_back(std::move(writable));
  spec.owner = parts_.identity.lease.base();
  spec.scratch = In("m");
  spec.force_paths = host_->options.force_fallback.contains("overlay");
  return os::MountOverlay(spec);
}

// The quota limits how much a machine computes; this makes nproc and thread pools agree with it. Least used cpus first.
void Machine::PickCpus() {
  size_t want = std::max(limits_.vcpus, 1U);
  if (want >= host_->cpus.size() || !pinned_.empty()) return;
  std::vector<size_t> order(host_->cpus.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, {}, [this](size_t i) { return std::pair(host_->cpu_use[i], i); });
  pinned_.assign(order.begin(), order.begin() + static_cast<ptrdiff_t>(want));
  for (size_t i : pinned_) ++host_->cpu_use[i];
}

Result<> Machine::Configure(const ConfigureReq& request) {
  if (state_ != State::kBooted) return Fail(Code::kConflict, "the machine is already configured");
  Preparation p;
  p.hostname = request.hostname.empty() ? kDefaultHostname : request.hostname;
  SB_TRY(auto layers, host_->layers->Prepare(request.layers, request.image_digest, p.hostname));
  host_layer_ = layers.host;
  std::span<const std::string> below = request.snapshots;
  if (!below.empty() && host_->disk->copies_snapshots()) {
    SB_TRYV(host_->disk->SnapshotLayer(below.front()));
    SB_TRYV(host_->disk->StartFrom(parts_.disk, below.front()));
    SB_TRYV(host_->disk->SetLimit(parts_.disk, limits_.disk_bytes));
    below = below.subspan(1);
  }
  std::vector<std::string> stack;
  for (const std::string& snapshot : below) {
    SB_TRY(std::string layer, host_->disk->SnapshotLayer(snapshot));
    stack.push_back(std::move(layer));
  }
  stack.insert(stack.end(), layers.paths.begin(), layers.paths.end());
  SB_TRY(p.root, MountRoot(stack));
  SB_TRY(root_watch_, host_->unmounts->Watch(p.root.get()));
  SB_TRYV(MakeMounts(p, *host_, parts_.identity, limits_));
  SB_TRY(p.join, parts_.group->OpenAgentJoin());
  SB_TRY(p.command_join, parts_.group->OpenCommandJoin());
  for (const Fd& fd : p.join) p.join_fds.push_back(fd.get());
  p.keep.push_back(listener_.get());
  for (const Fd& fd : p.command_join) {
    p.keep.push_back(fd.get());
    p.join_list += (p.join_list.empty() ? "" : ",") + std::to_string(p.keep.size() + 2);
  }
  p.argv = {"sandbar-guest", "--listen-fd", "3", "--join-fds", p.join_list.c_str(), nullptr};
  PickCpus();
  CPU_ZERO(&p.cpus);
  for (size_t i : pinned_) CPU_SET(host_->cpus[i], &p.cpus);

  os::ChildPlan plan;
  plan.join = p.join_fds;
  plan.netns = netns();
  plan.userns = parts_.identity.userns.get();
  plan.root = p.root.get();
  plan.dev = p.dev.get();
  plan.pts = p.pts.get();
  plan.shm = p.shm.get();
  plan.sys = p.sys.get();
  plan.mount_point = p.mount_point.c_str();
  plan.covers = p.covers;
  plan.read_only = os::ReadOnlyProcPaths();
  plan.hostname = p.hostname.c_str();
  plan.cpus = pinned_.empty() ? nullptr : &p.cpus;
  plan.keep = p.keep;
  plan.agent = host_->agent.get();
  plan.argv = p.argv.data();
  plan.filter = &p.filter;
  SB_TRY(child_, os::StartChild(plan));
  state_ = State::kStarting;
  return {};
}

void Machine::AfterStart() {
  layer_mounts_.clear();
  if (auto started = os::ProcessStartTime(child_.pid)) start_time_ = *started;
}

Result<bool> Machine::OnStatus() {
  auto status = os::ReadChildStatus(child_.status.get());
  if (status && !*status) return false;
  child_.status.Reset();
  if (!status) {
    Kill();
    return std::unexpected(std::move(status).error());
  }
  // The agent has its own copies now; nothing else may keep the namespace or the socket alive.
  listener_.Reset();
  parts_.identity.userns.Reset();
  if (state_ == State::kStarting) state_ = State::kRunning;
  return true;
}

std::optional<int> Machine::OnExit() {
  if (!child_.pidfd) return std::nullopt;
  auto status = os::TryReap(child_.pidfd.get());
  if (status && !status->has_value()) return std::nullopt;
  exit_status_ = status ? **status : 255;
  if (state_ != State::kEnding) state_ = State::kExited;
  return exit_status_;
}

MachineEntry Machine::entry() const {
  uint8_t state = state_ == State::kBooted || state_ == State::kStarting ? 0 : state_ == State::kRunning ? 1 : 2;
  return {id_, state, child_.pid, start_time_};
}

Result<> Machine::SetLimits(const Limits& limits) {
  SB_TRYV(CheckLimits(limits));
  SB_TRYV(parts_.group->SetLimits(ToCgroup(limits)));
  SB_TRYV(host_->disk->SetLimit(parts_.disk, limits.disk_bytes));
  limits_ = limits;
  return {};
}

Result<UsageResp> Machine::Usage() const {
  SB_TRY(os::CgroupUsage g, parts_.group->Usage());
  SB_TRY(uint64_t disk_bytes, host_->disk->Usage(parts_.disk));
  return UsageResp{g.cpu_ns, g.memory_bytes, g.memory_peak_bytes, disk_bytes, g.pids, g.oom_kills};
}

Result<> Machine::Freeze(bool frozen) {
  if (state_ != State::kRunning) return Fail(Code::kStopped, "the machine does not run");
  SB_TRYV(parts_.group->Freeze(frozen));
  frozen_ = frozen;
  return {};
}

void Machine::Kill() {
  if (child_.pidfd) {
    if (auto r = os::SendSignal(child_.pidfd.get(), SIGKILL); !r) log::Error("{}: {}", id_, r.error().message);
  }
  // The death of its first process ends the whole pid namespace; a frozen group takes no signal before it thaws.
  if (frozen_) {
    if (auto r = parts_.group->KillAll(); !r) log::Error("{}: {}", id_, r.error().message);
    if (auto r = parts_.group->Freeze(false); !r) log::Error("{}: {}", id_, r.error().message);
    frozen_ = false;
  }
}

bool Machine::ExpireUnstarted() {
  if (state_ != State::kBooted) return false;
  state_ = State::kExited;
  exit_status_ = 128 + SIGKILL;
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
  if (auto usage = Usage()) final_usage_ = *usage;
  Kill();
  layer_mounts_.clear();
  ::unlinkat(host_->agents.get(), socket_name().c_str(), 0);
  listener_.Reset();
  state_ = State::kEnding;
  return {};
}

bool Machine::TryFinish() {
  if (child_.pidfd) return false;
  child_.status.Reset();
  if (parts_.group) {
    if (auto empty = parts_.group->Empty(); empty && !*empty) {
      if (auto r = parts_.group->KillAll(); !r) log::Error("{}: {}", id_, r.error().message);
      return false;
    }
    // Counters that only grow are final now; the others are those of the last moment alive.
    if (auto usage = parts_.group->Usage()) {
      final_usage_.cpu_ns = usage->cpu_ns;
      final_usage_.memory_peak_bytes = usage->memory_peak_bytes;
      final_usage_.oom_kills = usage->oom_kills;
    }
  }
  if (!keep_as_.empty() && !parts_.disk.name.empty()) {
    // Not before the kernel let go of the upper directory: until then its bytes may still be on their way.
    if (root_watch_ && !host_->unmounts->Gone(*root_watch_)) return false;
    kept_ = host_->disk->Publish(parts_.disk, keep_as_);
    if (!kept_) {
      log::Error("{}: {}", id_, kept_.error().message);
      return false;
    }
    parts_.disk = {};
  }
  return DiscardParts(*host_, parts_);
}

}  // namespace sandbar::spawner
