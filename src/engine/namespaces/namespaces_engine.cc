#include "engine/namespaces/namespaces_engine.h"

#include <sys/socket.h>

#include "base/log.h"
#include "engine/namespaces/connection.h"
#include "engine/namespaces/walk_report.h"
#include "os/unix_socket.h"

namespace sandbar::engine {
namespace {

// A server that listens but does not accept.
constexpr std::chrono::seconds kDialTime{10};
constexpr size_t kWalkBuffer = 64 << 10;
constexpr size_t kMaxWalkText = 64 << 20;

spawner::Limits ToSpawner(const Limits& l) {
  return {l.vcpus, l.memory_bytes, l.pids, l.disk_bytes};
}

Usage FromSpawner(const spawner::UsageResp& u) {
  return {u.cpu_ns, u.memory_bytes, u.memory_peak_bytes, u.disk_bytes, u.pids, u.oom_kills};
}

// Bounded as every id of the protocol is; whoever shares the beginning shares the share.
std::string Bounded(const std::string& owner) {
  return owner.substr(0, 120);
}

template <class T>
Result<T> Expect(SpawnerReply& reply) {
  if (auto* body = std::get_if<T>(&reply.body)) return std::move(*body);
  return Fail(Code::kProtocol, "unexpected answer of the spawner");
}

EngineInfo ToInfo(spawner::EngineEntry e, bool copies_snapshots) {
  EngineInfo info;
  info.name = std::move(e.name);
  info.isolation_class = e.isolation_class;
  if (e.id == spawner::kGvisorEngine) info.attachment = AttachmentKind::kVeth;
  if (e.id == spawner::kMicrovmEngine) {
    info.attachment = AttachmentKind::kTap;
    info.format = RootfsFormat::kBlock;
    info.live = true;
  }
  info.copies_snapshots = copies_snapshots;
  info.usable = e.usable;
  info.why_not = std::move(e.why_not);
  info.no_nesting = std::move(e.no_nesting);
  return info;
}

class NamespacesMachine : public Machine {
 public:
  NamespacesMachine(std::shared_ptr<Connection> connection, std::shared_ptr<ExitState> exit, std::string id,
                    spawner::BootResp agent, NetworkSockets network)
      : connection_(std::move(connection)),
        exit_(std::move(exit)),
        id_(std::move(id)),
        agent_(std::move(agent)),
        network_(std::move(network)) {}

  const std::string& id() const override { return id_; }
  std::string AgentKey() const override { return agent_.agent_key; }

  Task<> Configure(Rootfs rootfs, MachineSpec spec) override {
    if (rootfs.layers.size() > spawner::kMaxLayers) co_return Fail(Code::kBadRequest, "too many layers");
    if (rootfs.snapshots.size() > spawner::kMaxSnapshotChain) co_return Fail(Code::kBadRequest, "too many snapshots");
    spawner::ConfigureReq request;
    request.machine = id_;
    request.layers = std::move(rootfs.layers);
    request.image_digest = std::move(rootfs.image_digest);
    request.hostname = std::move(spec.hostname);
    request.snapshots = std::move(rootfs.snapshots);
    if (rootfs.mounts.size() > spawner::kMaxMounts) co_return Fail(Code::kBadRequest, "too many mounts");
    for (DriveMount& m : rootfs.mounts)
      request.mounts.push_back({std::move(m.name), std::move(m.path), m.writable, m.uid, m.gid});
    request.memory = rootfs.memory;
    request.owner = Bounded(rootfs.owner);
    request.inherited_bytes = rootfs.inherited_bytes;
    const auto limit = rootfs.memory ? kMemoryLimit : kAnswerLimit;
    SB_CO_TRY(SpawnerReply reply, co_await connection_->Call(std::move(request), limit));
    SB_CO_TRYV(Expect<spawner::OkResp>(reply));
    co_return Result<>{};
  }

  Task<asio::local::stream_protocol::socket> Connect() override {
    auto fd = os::ConnectUnixPath(agent_.agent_socket, SOCK_STREAM);
    if (!fd) {
      Error e = std::move(fd).error();
      e.code = Code::kUnavailable;
      co_return std::unexpected(std::move(e).Context("the machine's agent"));
    }
    asio::local::stream_protocol::socket socket(connection_->executor());
    boost::system::error_code ec;
    socket.assign(asio::local::stream_protocol(), fd->get(), ec);
    if (ec) co_return std::unexpected(FromAsio(ec, "agent socket"));
    fd->Release();
    co_return socket;
  }

  Task<Fd> Dial(uint16_t port) override {
    auto fd = co_await DialOne(port, false);
    // Servers that bind "localhost" may be on ::1 only.
    if (!fd && fd.error().sys_errno == ECONNREFUSED) fd = co_await DialOne(port, true);
    if (!fd && fd.error().code == Code::kIo) fd.error().code = Code::kUnavailable;
    co_return fd;
  }

  NetworkSockets TakeNetwork() override { return std::move(network_); }

  Task<> SetLimits(Limits limits, uint64_t inherited_bytes) override {
    spawner::SetLimitsReq request;
    request.machine = id_;
    request.limits = ToSpawner(limits);
    request.inherited_bytes = inherited_bytes;
    co_return co_await Ask(std::move(request));
  }

  Task<> Assign(Owner owner) override {
    spawner::AssignReq request;
    request.machine = id_;
    request.project = owner.project;
    request.project_bytes = owner.bytes;
    co_return co_await Ask(std::move(request));
  }

  Task<> SetDeadline(std::chrono::milliseconds from_now) override {
    spawner::SetDeadlineReq request;
    request.machine = id_;
    request.deadline_ms = from_now.count();
    co_return co_await Ask(std::move(request));
  }

  Task<Usage> GetUsage() override {
    spawner::UsageReq request;
    request.machine = id_;
    SB_CO_TRY(SpawnerReply reply, co_await connection_->Call(std::move(request)));
    SB_CO_TRY(auto usage, Expect<spawner::UsageResp>(reply));
    co_return FromSpawner(usage);
  }

  Task<uint64_t> DroppedPackets() override {
    spawner::UsageReq request;
    request.machine = id_;
    request.packets = true;
    SB_CO_TRY(SpawnerReply reply, co_await connection_->Call(std::move(request)));
    SB_CO_TRY(auto usage, Expect<spawner::UsageResp>(reply));
    co_return usage.dropped_packets;
  }

  Task<> Pause() override {
    spawner::FreezeReq request;
    request.machine = id_;
    request.frozen = true;
    co_return co_await Ask(std::move(request));
  }

  Task<> Resume() override {
    spawner::FreezeReq request;
    request.machine = id_;
    request.frozen = false;
    co_return co_await Ask(std::move(request));
  }

  Task<Usage> Destroy() override { return DestroyKeeping(""); }

  Task<Usage> DestroyKeeping(std::string snapshot) override {
    network_ = {};
    spawner::DestroyReq request;
    request.machine = id_;
    request.keep_as = std::move(snapshot);
    SB_CO_TRY(SpawnerReply reply, co_await connection_->Call(std::move(request)));
    connection_->MarkExited(id_);
    SB_CO_TRY(auto usage, Expect<spawner::UsageResp>(reply));
    co_return FromSpawner(usage);
  }

  Task<LiveSnapshot> SnapshotLive(std::string snapshot, bool go_on) override {
    spawner::LiveSnapshotReq request;
    request.machine = id_;
    request.snapshot = std::move(snapshot);
    request.go_on = go_on;
    SB_CO_TRY(SpawnerReply reply, co_await connection_->Call(std::move(request), kMemoryLimit));
    SB_CO_TRY(auto taken, Expect<spawner::LiveSnapshotResp>(reply));
    LiveSnapshot live;
    live.pause = std::chrono::milliseconds(taken.pause_ms);
    live.memory_bytes = taken.memory_bytes;
    co_return live;
  }

  Task<> WaitExit() override {
    auto exit = exit_;  // outlives this machine object while we wait
    while (!exit->exited && !exit->lost) {
      SB_CO_TRYV(co_await exit->changed.Wait());
    }
    if (!exit->exited) co_return Fail(Code::kUnavailable, "the spawner is gone, and the machine with it");
    co_return Result<>{};
  }

 private:
  template <class Request>
  Task<> Ask(Request request) {
    SB_CO_TRY(SpawnerReply reply, co_await connection_->Call(std::move(request)));
    SB_CO_TRYV(Expect<spawner::OkResp>(reply));
    co_return Result<>{};
  }

  Task<Fd> DialOne(uint16_t port, bool ipv6) {
    spawner::DialReq request;
    request.machine = id_;
    request.port = port;
    request.ipv6 = ipv6;
    SB_CO_TRY(SpawnerReply reply, co_await connection_->Call(std::move(request)));
    SB_CO_TRYV(Expect<spawner::OkResp>(reply));
    if (reply.fds.size() != 1) co_return Fail(Code::kProtocol, "the spawner sent no connection");
    asio::posix::stream_descriptor socket(connection_->executor(), reply.fds[0].Release());
    auto ready = WaitWritable(&socket);
    SB_CO_TRYV(co_await WithTimeout(std::move(ready), kDialTime));
    Fd fd(socket.release());
    int error = 0;
    socklen_t size = sizeof error;
    if (::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) co_return FailErrno("getsockopt");
    if (error != 0) co_return FailErrno("connect to port " + std::to_string(port) + " of the machine", error);
    co_return fd;
  }

  static Task<> WaitWritable(asio::posix::stream_descriptor* socket) {
    auto [ec] = co_await socket->async_wait(asio::posix::stream_descriptor::wait_write, kToken);
    if (ec) co_return std::unexpected(FromAsio(ec, "connect"));
    co_return Result<>{};
  }

  // Shared with the engine, the other machines and the loop's handlers.
  std::shared_ptr<Connection> connection_;
  std::shared_ptr<ExitState> exit_;
  std::string id_;
  spawner::BootResp agent_;
  NetworkSockets network_;
};

class NamespacesEngineImpl : public NamespacesEngine {
 public:
  NamespacesEngineImpl(std::shared_ptr<Connection> connection, SpawnerInfo info)
      : connection_(std::move(connection)), info_(std::move(info)) {}
  ~NamespacesEngineImpl() override { connection_->Close("the engine was closed"); }
  NamespacesEngineImpl(const NamespacesEngineImpl&) = delete;
  NamespacesEngineImpl& operator=(const NamespacesEngineImpl&) = delete;

  EngineInfo info() const override { return info_.engines.front(); }
  std::vector<EngineInfo> engines() const override { return info_.engines; }
  const SpawnerInfo& spawner() const override { return info_; }

  Task<std::unique_ptr<Machine>> Boot(BootRequest request) override {
    const std::string name = request.engine.empty() ? info().name : request.engine;
    auto engine = std::ranges::find(info_.engines, name, &EngineInfo::name);
    if (engine == info_.engines.end()) co_return Fail(Code::kUnsupported, "this server has no engine " + name);
    if (!engine->usable) co_return Fail(Code::kUnsupported, "engine " + name + ": " + engine->why_not);
    if (request.format != engine->format || request.network != engine->attachment)
      co_return Fail(Code::kUnsupported, "the engine " + name + " has no such format or network");
    spawner::BootReq boot;
    boot.machine = request.machine_id;
    boot.limits = ToSpawner(request.limits);
    boot.deadline_ms = request.deadline.count();
    boot.nesting = request.nesting;
    boot.project = request.owner.project;
    boot.project_bytes = request.owner.bytes;
    boot.engine = info_.engine_ids[static_cast<size_t>(engine - info_.engines.begin())];
    auto made = co_await Obtain(std::move(request.machine_id), std::move(boot));
    co_return made;
  }

  Task<std::unique_ptr<Machine>> Attach(std::string machine_id) override {
    spawner::AttachReq attach;
    attach.machine = machine_id;
    auto made = co_await Obtain(std::move(machine_id), std::move(attach));
    co_return made;
  }

  Task<std::vector<MachineInfo>> List() override {
    spawner::Request request = spawner::ListReq();
    SB_CO_TRY(SpawnerReply reply, co_await connection_->Call(std::move(request)));
    SB_CO_TRY(auto list, Expect<spawner::ListResp>(reply));
    std::vector<MachineInfo> machines;
    for (auto& m : list.machines) {
      MachineState state = m.state == 0   ? MachineState::kBooted
                           : m.state == 1 ? MachineState::kConfigured
                                          : MachineState::kExited;
      machines.push_back({std::move(m.machine), state, NameOf(m.engine)});
    }
    co_return machines;
  }

  Task<std::vector<std::string>> ListSnapshots() override { return Names<spawner::ListSnapshotsReq>(); }

  Task<> FlattenSnapshots(std::vector<std::string> layers, std::string target, std::string owner) override {
    spawner::FlattenReq request;
    request.owner = Bounded(owner);
    request.layers = std::move(layers);
    request.target = std::move(target);
    co_return co_await Ask(std::move(request));
  }

  Task<LayerReport> WriteManifest(std::string snapshot, std::string owner) override {
    spawner::ManifestReq request;
    request.owner = Bounded(owner);
    request.snapshot = std::move(snapshot);
    SB_CO_TRY(std::string text, co_await Walk(std::move(request)));
    co_return ParseLayerReport(text);
  }

  Task<LayerReport> CheckManifest(std::string snapshot, std::string owner) override {
    spawner::ManifestReq request;
    request.owner = Bounded(owner);
    request.snapshot = std::move(snapshot);
    request.check = true;
    SB_CO_TRY(std::string text, co_await Walk(std::move(request)));
    co_return ParseLayerReport(text);
  }

  Task<LayerDiff> Diff(LayerStack before, LayerStack after, std::string owner) override {
    spawner::DiffReq request;
    request.owner = Bounded(owner);
    request.before = std::move(before.snapshots);
    request.before_image = std::move(before.image);
    request.after = std::move(after.snapshots);
    request.after_image = std::move(after.image);
    SB_CO_TRY(std::string text, co_await Walk(std::move(request)));
    co_return ParseLayerDiff(text);
  }

  Task<> RemoveSnapshot(std::string snapshot) override {
    spawner::RemoveSnapshotReq request;
    request.snapshot = std::move(snapshot);
    co_return co_await Ask(std::move(request));
  }

  Task<> RemoveMemory(std::string snapshot) override {
    spawner::RemoveSnapshotReq request;
    request.snapshot = std::move(snapshot);
    request.memory_only = true;
    co_return co_await Ask(std::move(request));
  }

  Task<> CreateDrive(std::string drive, uint64_t max_bytes, Owner owner) override {
    spawner::CreateDriveReq request;
    request.drive = std::move(drive);
    request.max_bytes = max_bytes;
    request.project = owner.project;
    request.project_bytes = owner.bytes;
    co_return co_await Ask(std::move(request));
  }

  Task<> FreezeDrive(std::string drive, std::string state, std::string owner) override {
    spawner::FreezeDriveReq request;
    request.owner = Bounded(owner);
    request.drive = std::move(drive);
    request.state = std::move(state);
    co_return co_await Ask(std::move(request));
  }

  Task<> RemoveDrive(std::string name) override {
    spawner::RemoveDriveReq request;
    request.name = std::move(name);
    co_return co_await Ask(std::move(request));
  }

  Task<std::vector<std::string>> ListDrives() override { return Names<spawner::ListDrivesReq>(); }

  Task<> SnapshotToBlock(std::string layer, std::string target, uint64_t bytes, std::string owner) override {
    spawner::ToBlockReq request;
    request.owner = Bounded(owner);
    request.source = std::move(layer);
    request.target = std::move(target);
    request.bytes = bytes;
    co_return co_await Ask(std::move(request), kMemoryLimit);
  }

  Task<> DriveToBlock(std::string source, std::string target, std::string owner) override {
    spawner::ToBlockReq request;
    request.owner = Bounded(owner);
    request.source = std::move(source);
    request.target = std::move(target);
    request.drive = true;
    co_return co_await Ask(std::move(request), kMemoryLimit);
  }

  Task<std::optional<RootfsFormat>> DriveFormat(std::string name) override {
    spawner::DriveFormatReq request;
    request.name = std::move(name);
    SB_CO_TRY(SpawnerReply reply, co_await connection_->Call(std::move(request)));
    SB_CO_TRY(auto answer, Expect<spawner::SnapshotsResp>(reply));
    if (answer.snapshots.size() != 1) co_return Fail(Code::kProtocol, "the spawner names no format");
    std::optional<RootfsFormat> format;
    if (answer.snapshots.front() == "dir") format = RootfsFormat::kDir;
    if (answer.snapshots.front() == "block") format = RootfsFormat::kBlock;
    co_return format;
  }

  Task<> ReplaceDrive(std::string drive, std::string by) override {
    spawner::ReplaceDriveReq request;
    request.drive = std::move(drive);
    request.by = std::move(by);
    co_return co_await Ask(std::move(request));
  }

  Task<> Shutdown() override {
    spawner::Request request = spawner::ShutdownReq();
    SB_CO_TRY(SpawnerReply reply, co_await connection_->Call(std::move(request)));
    SB_CO_TRYV(Expect<spawner::OkResp>(reply));
    co_return Result<>{};
  }

 private:
  std::string NameOf(uint8_t id) const {
    auto it = std::ranges::find(info_.engine_ids, id);
    return it == info_.engine_ids.end() ? "" : info_.engines[static_cast<size_t>(it - info_.engine_ids.begin())].name;
  }

  // Everything that the walker says. It takes as long as there is to read.
  Task<std::string> Walk(spawner::Request request) {
    auto connection = connection_;
    SB_CO_TRY(SpawnerReply reply, co_await connection->Call(std::move(request)));
    SB_CO_TRYV(Expect<spawner::OkResp>(reply));
    if (reply.fds.size() != 1) co_return Fail(Code::kProtocol, "the spawner sent no pipe");
    asio::posix::stream_descriptor pipe(connection->executor(), reply.fds[0].Release());
    std::string text, buffer(kWalkBuffer, '\0');
    for (;;) {
      auto space = asio::buffer(buffer);
      auto [ec, n] = co_await pipe.async_read_some(space, kToken);
      if (ec == asio::error::eof) co_return text;
      if (ec) co_return std::unexpected(FromAsio(ec, "read what the walker says"));
      if (text.size() + n > kMaxWalkText) co_return Fail(Code::kTooLarge, "there is too much to tell");
      text.append(buffer, 0, n);
    }
  }

  template <class Request>
  Task<> Ask(Request request, std::chrono::seconds limit = kAnswerLimit) {
    SB_CO_TRY(SpawnerReply reply, co_await connection_->Call(std::move(request), limit));
    SB_CO_TRYV(Expect<spawner::OkResp>(reply));
    co_return Result<>{};
  }

  // All pages of a list.
  template <class Request>
  Task<std::vector<std::string>> Names() {
    std::vector<std::string> all;
    for (;;) {
      Request request;
      if (!all.empty()) request.after = all.back();
      SB_CO_TRY(SpawnerReply reply, co_await connection_->Call(std::move(request)));
      SB_CO_TRY(auto page, Expect<spawner::SnapshotsResp>(reply));
      all.insert(all.end(), page.snapshots.begin(), page.snapshots.end());
      if (page.snapshots.size() < spawner::kSnapshotsPerPage) co_return all;
    }
  }

  template <class Request>
  Task<std::unique_ptr<Machine>> Obtain(std::string id, Request request) {
    auto connection = connection_;
    auto exit = connection->Track(id);
    SB_CO_TRY(SpawnerReply reply, co_await connection->Call(std::move(request)));
    SB_CO_TRY(auto boot, Expect<spawner::BootResp>(reply));
    if (reply.fds.size() != 2) co_return Fail(Code::kProtocol, "the spawner sent no network");
    NetworkSockets network;
    network.tcp_listener = std::move(reply.fds[0]);
    network.dns = std::move(reply.fds[1]);
    co_return std::make_unique<NamespacesMachine>(std::move(connection), std::move(exit), std::move(id),
                                                  std::move(boot), std::move(network));
  }

  // Shared with the machines and the loop's handlers.
  std::shared_ptr<Connection> connection_;
  SpawnerInfo info_;
};

}  // namespace

Task<std::unique_ptr<NamespacesEngine>> OpenNamespacesEngine(asio::any_io_executor executor, std::string socket_path) {
  SB_CO_TRY(auto connection, Connection::Open(executor, socket_path));
  spawner::Request hello = spawner::HelloReq();
  auto answer = co_await connection->Call(std::move(hello));
  if (!answer) {
    connection->Close("no hello");
    co_return std::unexpected(std::move(answer).error());
  }
  auto body = Expect<spawner::HelloResp>(*answer);
  if (!body) {
    connection->Close("no hello");
    co_return std::unexpected(std::move(body).error());
  }
  SpawnerInfo info;
  info.instance = std::move(body->instance);
  info.disk_limit = std::move(body->disk_limit);
  info.cgroup = std::move(body->cgroup);
  info.copies_snapshots = body->copies_snapshots;
  for (spawner::EngineEntry& e : body->engines) {
    info.engine_ids.push_back(e.id);
    info.engines.push_back(ToInfo(std::move(e), body->copies_snapshots));
  }
  if (info.engines.empty()) {
    connection->Close("no engines");
    co_return Fail(Code::kProtocol, "the spawner knows no engine");
  }
  co_return std::make_unique<NamespacesEngineImpl>(std::move(connection), std::move(info));
}

Task<std::unique_ptr<Engine>> ConnectNamespacesEngine(asio::any_io_executor executor, std::string socket_path) {
  SB_CO_TRY(std::unique_ptr<Engine> engine, co_await OpenNamespacesEngine(std::move(executor), std::move(socket_path)));
  co_return engine;
}

}  // namespace sandbar::engine
