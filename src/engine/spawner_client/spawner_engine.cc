#include "engine/spawner_client/spawner_engine.h"

#include <sys/socket.h>

#include "base/log.h"
#include "engine/spawner_client/connection.h"
#include "engine/spawner_client/scan_report.h"
#include "engine/spawner_client/spawner_machine.h"
#include "os/unix_socket.h"

namespace sandbar::engine {
namespace {

constexpr size_t kScanBuffer = 64 << 10;
constexpr size_t kMaxScanText = 64 << 20;

EngineInfo ToInfo(protocol::EngineEntry e, bool copies_snapshots) {
  EngineInfo info;
  info.name = std::move(e.name);
  info.isolation_class = e.isolation_class;
  if (const EngineTraits* traits = FindEngine(info.name)) {
    info.attachment = traits->network;
    info.format = traits->format;
    info.keeps_memory = traits->keeps_memory;
    info.own_kernel = traits->has_own_kernel;
    info.emulated = traits->emulated;
    info.restores_slowly = traits->restores_slowly;
  }
  info.copies_snapshots = copies_snapshots;
  info.usable = e.usable;
  info.why_not = std::move(e.why_not);
  info.no_nesting = std::move(e.no_nesting);
  return info;
}

class SpawnerEngineImpl : public SpawnerEngine {
 public:
  SpawnerEngineImpl(std::shared_ptr<Connection> connection, SpawnerInfo info)
      : connection_(std::move(connection)), info_(std::move(info)) {}
  ~SpawnerEngineImpl() override { connection_->Close("the engine was closed"); }
  SpawnerEngineImpl(const SpawnerEngineImpl&) = delete;
  SpawnerEngineImpl& operator=(const SpawnerEngineImpl&) = delete;

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
    protocol::BootReq boot;
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
    protocol::AttachReq attach;
    attach.machine = machine_id;
    auto made = co_await Obtain(std::move(machine_id), std::move(attach));
    co_return made;
  }

  Task<std::vector<MachineInfo>> List() override {
    protocol::SpawnerRequest request = protocol::ListReq();
    SB_CO_TRY(SpawnerReply reply, co_await connection_->Call(std::move(request)));
    SB_CO_TRY(auto list, Expect<protocol::ListResp>(reply));
    std::vector<MachineInfo> machines;
    for (auto& m : list.machines) {
      MachineState state = m.state == 0   ? MachineState::kBooted
                           : m.state == 1 ? MachineState::kConfigured
                                          : MachineState::kExited;
      machines.push_back({std::move(m.machine), state, NameOf(m.engine)});
    }
    co_return machines;
  }

  Task<std::vector<std::string>> ListSnapshots() override { return Names<protocol::ListSnapshotsReq>(); }

  Task<> FlattenSnapshots(std::vector<std::string> layers, std::string target, std::string owner) override {
    protocol::FlattenReq request;
    request.owner = Bounded(owner);
    request.layers = std::move(layers);
    request.target = std::move(target);
    co_return co_await Ask(std::move(request));
  }

  Task<LayerReport> WriteManifest(std::string snapshot, std::string owner) override {
    protocol::ManifestReq request;
    request.owner = Bounded(owner);
    request.snapshot = std::move(snapshot);
    SB_CO_TRY(std::string text, co_await Scan(std::move(request)));
    co_return ParseLayerReport(text);
  }

  Task<LayerReport> CheckManifest(std::string snapshot, std::string owner) override {
    protocol::ManifestReq request;
    request.owner = Bounded(owner);
    request.snapshot = std::move(snapshot);
    request.check = true;
    SB_CO_TRY(std::string text, co_await Scan(std::move(request)));
    co_return ParseLayerReport(text);
  }

  Task<LayerDiff> Diff(LayerStack before, LayerStack after, std::string owner) override {
    protocol::DiffReq request;
    request.owner = Bounded(owner);
    request.before = std::move(before.snapshots);
    request.before_image = std::move(before.image);
    request.after = std::move(after.snapshots);
    request.after_image = std::move(after.image);
    SB_CO_TRY(std::string text, co_await Scan(std::move(request)));
    co_return ParseLayerDiff(text);
  }

  Task<> RemoveSnapshot(std::string snapshot) override {
    protocol::RemoveSnapshotReq request;
    request.snapshot = std::move(snapshot);
    co_return co_await Ask(std::move(request));
  }

  Task<> RemoveMemory(std::string snapshot) override {
    protocol::RemoveSnapshotReq request;
    request.snapshot = std::move(snapshot);
    request.memory_only = true;
    co_return co_await Ask(std::move(request));
  }

  Task<> CreateDrive(std::string drive, uint64_t max_bytes, Owner owner) override {
    protocol::CreateDriveReq request;
    request.drive = std::move(drive);
    request.max_bytes = max_bytes;
    request.project = owner.project;
    request.project_bytes = owner.bytes;
    co_return co_await Ask(std::move(request));
  }

  Task<> SnapshotDrive(std::string drive, std::string snapshot, std::string owner) override {
    protocol::SnapshotDriveReq request;
    request.owner = Bounded(owner);
    request.drive = std::move(drive);
    request.snapshot = std::move(snapshot);
    co_return co_await Ask(std::move(request));
  }

  Task<> RemoveDrive(std::string name) override {
    protocol::RemoveDriveReq request;
    request.name = std::move(name);
    co_return co_await Ask(std::move(request));
  }

  Task<std::vector<std::string>> ListDrives() override { return Names<protocol::ListDrivesReq>(); }

  Task<> SnapshotToBlock(std::string layer, std::string target, uint64_t bytes, std::string owner) override {
    protocol::ToBlockReq request;
    request.owner = Bounded(owner);
    request.source = std::move(layer);
    request.target = std::move(target);
    request.bytes = bytes;
    co_return co_await Ask(std::move(request), kMemoryLimit);
  }

  Task<> DriveToBlock(std::string source, std::string target, std::string owner) override {
    protocol::ToBlockReq request;
    request.owner = Bounded(owner);
    request.source = std::move(source);
    request.target = std::move(target);
    request.drive = true;
    co_return co_await Ask(std::move(request), kMemoryLimit);
  }

  Task<std::optional<RootfsFormat>> DriveFormat(std::string name) override {
    protocol::DriveFormatReq request;
    request.name = std::move(name);
    SB_CO_TRY(SpawnerReply reply, co_await connection_->Call(std::move(request)));
    SB_CO_TRY(auto answer, Expect<protocol::SnapshotsResp>(reply));
    if (answer.snapshots.size() != 1) co_return Fail(Code::kProtocol, "the spawner names no format");
    std::optional<RootfsFormat> format;
    if (answer.snapshots.front() == "dir") format = RootfsFormat::kDir;
    if (answer.snapshots.front() == "block") format = RootfsFormat::kBlock;
    co_return format;
  }

  Task<> ReplaceDrive(std::string drive, std::string by) override {
    protocol::ReplaceDriveReq request;
    request.drive = std::move(drive);
    request.by = std::move(by);
    co_return co_await Ask(std::move(request));
  }

  Task<> Shutdown() override {
    protocol::SpawnerRequest request = protocol::ShutdownReq();
    SB_CO_TRY(SpawnerReply reply, co_await connection_->Call(std::move(request)));
    SB_CO_TRYV(Expect<protocol::OkResp>(reply));
    co_return Result<>{};
  }

 private:
  std::string NameOf(uint8_t id) const {
    auto it = std::ranges::find(info_.engine_ids, id);
    return it == info_.engine_ids.end() ? "" : info_.engines[static_cast<size_t>(it - info_.engine_ids.begin())].name;
  }

  // Everything that the layer scanner says. It takes as long as there is to read.
  Task<std::string> Scan(protocol::SpawnerRequest request) {
    auto connection = connection_;
    SB_CO_TRY(SpawnerReply reply, co_await connection->Call(std::move(request)));
    SB_CO_TRYV(Expect<protocol::OkResp>(reply));
    if (reply.fds.size() != 1) co_return Fail(Code::kProtocol, "the spawner sent no pipe");
    asio::posix::stream_descriptor pipe(connection->executor(), reply.fds[0].Release());
    std::string text, buffer(kScanBuffer, '\0');
    for (;;) {
      auto space = asio::buffer(buffer);
      auto [ec, n] = co_await pipe.async_read_some(space, kToken);
      if (ec == asio::error::eof) co_return text;
      if (ec) co_return std::unexpected(FromAsio(ec, "read what the layer scanner says"));
      if (text.size() + n > kMaxScanText) co_return Fail(Code::kTooLarge, "there is too much to tell");
      text.append(buffer, 0, n);
    }
  }

  template <class Request>
  Task<> Ask(Request request, std::chrono::seconds limit = kAnswerLimit) {
    SB_CO_TRY(SpawnerReply reply, co_await connection_->Call(std::move(request), limit));
    SB_CO_TRYV(Expect<protocol::OkResp>(reply));
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
      SB_CO_TRY(auto page, Expect<protocol::SnapshotsResp>(reply));
      all.insert(all.end(), page.snapshots.begin(), page.snapshots.end());
      if (page.snapshots.size() < protocol::kSnapshotsPerPage) co_return all;
    }
  }

  template <class Request>
  Task<std::unique_ptr<Machine>> Obtain(std::string id, Request request) {
    auto connection = connection_;
    auto exit = connection->Track(id);
    SB_CO_TRY(SpawnerReply reply, co_await connection->Call(std::move(request)));
    SB_CO_TRY(auto boot, Expect<protocol::BootResp>(reply));
    if (reply.fds.size() != 2) co_return Fail(Code::kProtocol, "the spawner sent no network");
    NetworkSockets network;
    network.tcp_listener = std::move(reply.fds[0]);
    network.dns = std::move(reply.fds[1]);
    co_return NewSpawnerMachine(std::move(connection), std::move(exit), std::move(id), std::move(boot),
                                std::move(network));
  }

  // Shared with the machines and the loop's handlers.
  std::shared_ptr<Connection> connection_;
  SpawnerInfo info_;
};

}  // namespace

Task<std::unique_ptr<SpawnerEngine>> OpenSpawnerEngine(asio::any_io_executor executor, std::string socket_path) {
  SB_CO_TRY(auto connection, Connection::Open(executor, socket_path));
  auto body = co_await connection->Hello();
  if (!body) {
    connection->Close("no hello");
    co_return std::unexpected(std::move(body).error());
  }
  SpawnerInfo info;
  info.instance = std::move(body->instance);
  info.disk_limit = std::move(body->disk_limit);
  info.cgroup = std::move(body->cgroup);
  info.copies_snapshots = body->copies_snapshots;
  for (protocol::EngineEntry& e : body->engines) {
    info.engine_ids.push_back(e.id);
    info.engines.push_back(ToInfo(std::move(e), body->copies_snapshots));
  }
  if (info.engines.empty()) {
    connection->Close("no engines");
    co_return Fail(Code::kProtocol, "the spawner knows no engine");
  }
  co_return std::make_unique<SpawnerEngineImpl>(std::move(connection), std::move(info));
}

Task<std::unique_ptr<Engine>> ConnectSpawnerEngine(asio::any_io_executor executor, std::string socket_path) {
  SB_CO_TRY(std::unique_ptr<Engine> engine, co_await OpenSpawnerEngine(std::move(executor), std::move(socket_path)));
  co_return engine;
}

}  // namespace sandbar::engine
