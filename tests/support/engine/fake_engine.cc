#include "support/engine/fake_engine.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/local/connect_pair.hpp>

namespace sandbar::engine {
namespace {

Fd LoopbackSocket(int type) {
  Fd fd(::socket(AF_INET, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const bool bound = fd && ::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  if (!bound || (type == SOCK_STREAM && ::listen(fd.get(), 16) != 0)) return Fd();
  return fd;
}

}  // namespace

FakeMachineState* FakeHost::Find(const std::string& id) {
  auto it = machines_.find(id);
  return it == machines_.end() ? nullptr : it->second.get();
}

std::vector<std::string> FakeHost::ids() const {
  std::vector<std::string> out;
  for (const auto& [id, state] : machines_) out.push_back(id);
  return out;
}

asio::awaitable<void> FakeHost::EndMachine(std::string id) {
  auto it = machines_.find(id);
  if (it == machines_.end()) co_return;
  auto state = it->second;
  state->state = MachineState::kExited;
  co_await state->agent.Close();
  state->ended.Notify();
}

bool FakeHost::Uses(const std::string& drive) const {
  for (const auto& [id, state] : machines_) {
    for (const DriveMount& mount : state->rootfs.mounts) {
      if (mount.name == drive) return true;
    }
  }
  return false;
}

asio::awaitable<void> FakeHost::Close() {
  auto machines = std::exchange(machines_, {});
  for (auto& [id, state] : machines) co_await state->agent.Close();
}

Task<> FakeHost::Meet(FakeFault fault, std::string what) {
  if (fault == FakeFault::kFail) co_return Fail(Code::kUnavailable, what + ": made to fail");
  if (fault == FakeFault::kHang) {
    Event never(ex_);
    co_return co_await never.Wait();
  }
  co_return Result<>{};
}

class FakeMachine final : public Machine {
 public:
  FakeMachine(FakeHost* host, std::shared_ptr<FakeMachineState> state) : host_(host), state_(std::move(state)) {}

  const std::string& id() const override { return state_->id; }

  Task<> Configure(Rootfs rootfs, MachineSpec) override {
    SB_CO_TRYV(co_await host_->Meet(host_->faults.configure, "configure"));
    for (const std::string& snapshot : rootfs.snapshots) {
      if (!host_->snapshots.contains(snapshot)) co_return Fail(Code::kNotFound, "no such snapshot: " + snapshot);
    }
    for (const DriveMount& mount : rootfs.mounts) {
      if (!host_->drives.contains(mount.name)) co_return Fail(Code::kNotFound, "no such drive: " + mount.name);
      if (mount.writable && host_->Uses(mount.name)) co_return Fail(Code::kConflict, "another machine has it");
      auto [format, unused] = host_->formats.try_emplace(mount.name, rootfs.format);
      if (format->second != rootfs.format) co_return Fail(Code::kConflict, "it has the other format");
    }
    state_->rootfs = std::move(rootfs);
    while (host_->slow_starts) {
      SB_CO_TRYV(co_await Sleep(std::chrono::milliseconds(5)));
    }
    state_->state = MachineState::kConfigured;
    co_return Result<>{};
  }

  Task<asio::local::stream_protocol::socket> Connect() override {
    SB_CO_TRYV(co_await host_->Meet(host_->faults.connect, "connect"));
    if (state_->state != MachineState::kConfigured) co_return Fail(Code::kUnavailable, "the machine does not run");
    asio::local::stream_protocol::socket ours(host_->ex_);
    asio::local::stream_protocol::socket agents(host_->ex_);
    boost::system::error_code ec;
    asio::local::connect_pair(ours, agents, ec);
    if (ec) co_return std::unexpected(FromAsio(ec, "socketpair"));
    state_->agent.Serve(std::move(agents));
    co_return ours;
  }

  Task<Fd> Dial(uint16_t port) override {
    if (!state_->ports.contains(port)) co_return Fail(Code::kUnavailable, "nothing listens there");
    int pair[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0)
      co_return FailErrno("socketpair");
    state_->ports[port](Fd(pair[1]));
    co_return Fd(pair[0]);
  }

  NetworkSockets TakeNetwork() override {
    NetworkSockets sockets{LoopbackSocket(SOCK_STREAM), LoopbackSocket(SOCK_DGRAM)};
    sockaddr_in address{};
    socklen_t size = sizeof(address);
    const bool named = ::getsockname(sockets.dns.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0;
    state_->dns_port = named ? ntohs(address.sin_port) : 0;
    return sockets;
  }

  Task<> SetLimits(Limits limits, uint64_t inherited_bytes) override {
    state_->limits = limits;
    state_->rootfs.inherited_bytes = inherited_bytes;
    co_return Result<>{};
  }

  Task<> Assign(Owner owner) override {
    state_->owner = owner;
    co_return Result<>{};
  }

  Task<> SetDeadline(std::chrono::milliseconds from_now) override {
    SB_CO_TRYV(co_await host_->Meet(host_->faults.set_deadline, "set deadline"));
    state_->deadline = from_now;
    co_return Result<>{};
  }

  Task<Usage> GetUsage() override { co_return state_->usage; }
  Task<uint64_t> DroppedPackets() override { co_return state_->dropped_packets; }

  Task<> Pause() override {
    state_->paused = true;
    co_return Result<>{};
  }

  Task<> Resume() override {
    state_->paused = false;
    co_return Result<>{};
  }

  Task<Usage> Destroy() override {
    SB_CO_TRYV(co_await host_->Meet(host_->faults.destroy, "destroy"));
    state_->state = MachineState::kExited;
    co_await state_->agent.Close();
    host_->machines_.erase(state_->id);
    co_return state_->usage;
  }

  Task<Usage> DestroyKeeping(std::string snapshot) override {
    auto usage = co_await Destroy();
    if (usage) host_->snapshots.insert(std::move(snapshot));
    co_return usage;
  }

  Task<MemorySnapshot> SnapshotMemory(std::string, bool) override {
    co_return Fail(Code::kUnsupported, "a fake machine has no memory");
  }

  Task<> WaitExit() override {
    while (state_->state != MachineState::kExited) {
      SB_CO_TRYV(co_await state_->ended.Wait());
    }
    co_return Result<>{};
  }

 private:
  FakeHost* host_;
  std::shared_ptr<FakeMachineState> state_;
};

class FakeEngine final : public Engine {
 public:
  explicit FakeEngine(FakeHost* host) : host_(host) {}

  EngineInfo info() const override { return host_->engines.front(); }
  std::vector<EngineInfo> engines() const override { return host_->engines; }

  Task<std::unique_ptr<Machine>> Boot(BootRequest request) override {
    SB_CO_TRYV(co_await host_->Meet(host_->faults.boot, "boot"));
    if (host_->machines_.contains(request.machine_id)) co_return Fail(Code::kConflict, "machine exists");
    const std::string name = request.engine.empty() ? info().name : request.engine;
    auto engine = std::ranges::find(host_->engines, name, &EngineInfo::name);
    if (engine == host_->engines.end() || !engine->usable) co_return Fail(Code::kUnsupported, "no engine " + name);
    if (request.format != engine->format || request.network != engine->attachment)
      co_return Fail(Code::kUnsupported, "the engine " + name + " has no such format or network");
    ++host_->boots;
    auto state = std::make_shared<FakeMachineState>(host_->ex_, request.machine_id);
    state->engine = name;
    state->nesting = request.nesting;
    state->owner = request.owner;
    state->limits = request.limits;
    state->deadline = request.deadline;
    state->agent.on_oom = [s = state.get()] { ++s->usage.oom_kills; };
    state->agent.on_die = [s = state.get()] {
      s->state = MachineState::kExited;
      s->agent.Drop();
      s->ended.Notify();
    };
    host_->machines_[request.machine_id] = state;
    co_return std::make_unique<FakeMachine>(host_, state);
  }

  Task<std::vector<MachineInfo>> List() override {
    std::vector<MachineInfo> out;
    for (const auto& [id, state] : host_->machines_) out.push_back({id, state->state, state->engine});
    co_return out;
  }

  Task<std::unique_ptr<Machine>> Attach(std::string machine_id) override {
    auto it = host_->machines_.find(machine_id);
    if (it == host_->machines_.end()) co_return Fail(Code::kNotFound, "no such machine: " + machine_id);
    co_return std::make_unique<FakeMachine>(host_, it->second);
  }

  Task<std::vector<std::string>> ListSnapshots() override {
    co_return std::vector<std::string>(host_->snapshots.begin(), host_->snapshots.end());
  }

  Task<> FlattenSnapshots(std::vector<std::string> layers, std::string target, std::string) override {
    for (const std::string& layer : layers) {
      if (!host_->snapshots.contains(layer)) co_return Fail(Code::kNotFound, "no such snapshot: " + layer);
    }
    host_->snapshots.insert(std::move(target));
    co_return Result<>{};
  }

  Task<LayerReport> WriteManifest(std::string snapshot, std::string owner) override {
    if (!host_->snapshots.contains(snapshot)) co_return Fail(Code::kNotFound, "no such snapshot: " + snapshot);
    ++host_->scans[snapshot];
    // A scan that goes on for as long as the test wants.
    while (host_->slow_scans.contains(owner)) {
      SB_CO_TRYV(co_await Sleep(std::chrono::milliseconds(5)));
    }
    for (const std::string& name : {snapshot, std::string()}) {
      auto fault = host_->faults.manifest.find(name);
      if (fault != host_->faults.manifest.end()) co_return Fail(fault->second, "manifest: made to fail");
    }
    if (host_->damage.contains(snapshot)) co_return Fail(Code::kIo, host_->damage[snapshot]);
    LayerReport report;
    report.bytes = host_->layer_bytes;
    report.files = 1;
    report.digest = "digest of " + snapshot;
    host_->manifests.insert(std::move(snapshot));
    co_return report;
  }

  Task<LayerReport> CheckManifest(std::string snapshot, std::string) override {
    ++host_->checks;
    if (!host_->manifests.contains(snapshot)) co_return Fail(Code::kNotFound, "no manifest of " + snapshot);
    LayerReport report;
    report.bytes = host_->layer_bytes;
    report.files = 1;
    report.digest = "digest of " + snapshot;
    if (host_->damage.contains(snapshot)) {
      report.differences = 1;
      report.first.push_back(host_->damage[snapshot]);
    }
    co_return report;
  }

  // Layers are the files.
  Task<LayerDiff> Diff(LayerStack before, LayerStack after, std::string) override {
    LayerDiff diff;
    for (const std::string& layer : after.snapshots) {
      if (!host_->snapshots.contains(layer)) co_return Fail(Code::kNotFound, "no such snapshot: " + layer);
      if (std::ranges::find(before.snapshots, layer) == before.snapshots.end())
        diff.changes.push_back({'A', 'f', 1, 0, "/" + layer});
    }
    co_return diff;
  }

  Task<> RemoveSnapshot(std::string snapshot) override {
    SB_CO_TRYV(co_await host_->Meet(host_->faults.remove_snapshot, "remove snapshot"));
    host_->snapshots.erase(snapshot);
    co_return Result<>{};
  }

  Task<> RemoveMemory(std::string snapshot) override {
    SB_CO_TRYV(co_await host_->Meet(host_->faults.remove_memory, "remove memory"));
    host_->memories.erase(snapshot);
    co_return Result<>{};
  }
  Task<> CreateDrive(std::string drive, uint64_t max_bytes, Owner owner) override {
    SB_CO_TRYV(co_await host_->Meet(host_->faults.create_drive, "create drive"));
    host_->owners[drive] = owner;
    host_->drives[std::move(drive)] = max_bytes;
    co_return Result<>{};
  }

  Task<> SnapshotDrive(std::string drive, std::string snapshot, std::string) override {
    SB_CO_TRYV(co_await host_->Meet(host_->faults.snapshot_drive, "snapshot drive"));
    if (!host_->drives.contains(drive)) co_return Fail(Code::kNotFound, "no such drive: " + drive);
    if (host_->Uses(drive)) co_return Fail(Code::kConflict, "a machine writes to it");
    if (auto it = host_->formats.find(drive); it != host_->formats.end()) host_->formats[snapshot] = it->second;
    host_->drives.emplace(std::move(snapshot), 0);
    co_return Result<>{};
  }

  Task<> RemoveDrive(std::string name) override {
    if (host_->Uses(name)) co_return Fail(Code::kConflict, "a machine uses it");
    host_->drives.erase(name);
    host_->formats.erase(name);
    co_return Result<>{};
  }

  Task<std::vector<std::string>> ListDrives() override {
    std::vector<std::string> out;
    for (const auto& [name, limit] : host_->drives) out.push_back(name);
    co_return out;
  }

  Task<> SnapshotToBlock(std::string layer, std::string target, uint64_t, std::string) override {
    if (!host_->snapshots.contains(layer)) co_return Fail(Code::kNotFound, "no such snapshot: " + layer);
    host_->snapshots.insert(std::move(target));
    co_return Result<>{};
  }

  Task<> DriveToBlock(std::string source, std::string target, std::string) override {
    if (!host_->drives.contains(source)) co_return Fail(Code::kNotFound, "no such drive: " + source);
    host_->formats[target] = RootfsFormat::kBlock;
    host_->drives[std::move(target)] = host_->drives[source];
    co_return Result<>{};
  }

  Task<std::optional<RootfsFormat>> DriveFormat(std::string name) override {
    auto it = host_->formats.find(name);
    co_return it == host_->formats.end() ? std::nullopt : std::optional(it->second);
  }

  Task<> ReplaceDrive(std::string drive, std::string by) override {
    if (host_->Uses(drive) || host_->Uses(by)) co_return Fail(Code::kConflict, "a machine uses it");
    host_->formats[drive] = host_->formats[by];
    host_->drives.erase(by);
    host_->formats.erase(by);
    co_return Result<>{};
  }

 private:
  FakeHost* host_;
};

std::unique_ptr<Engine> MakeFakeEngine(FakeHost* host) {
  return std::make_unique<FakeEngine>(host);
}

}  // namespace sandbar::engine
