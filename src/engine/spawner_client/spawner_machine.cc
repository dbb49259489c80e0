#include "engine/spawner_client/spawner_machine.h"

#include <sys/socket.h>

#include "os/unix_socket.h"

namespace sandbar::engine {
namespace {

// A server that listens but does not accept.
constexpr std::chrono::seconds kDialTime{10};

Usage FromSpawner(const protocol::UsageResp& u) {
  return {u.cpu_ns, u.memory_bytes, u.memory_peak_bytes, u.disk_bytes, u.pids, u.oom_kills};
}

class SpawnerMachine : public Machine {
 public:
  SpawnerMachine(std::shared_ptr<Connection> connection, std::shared_ptr<ExitState> exit, std::string id,
                 protocol::BootResp agent, NetworkSockets network)
      : connection_(std::move(connection)),
        exit_(std::move(exit)),
        id_(std::move(id)),
        agent_(std::move(agent)),
        network_(std::move(network)) {}

  const std::string& id() const override { return id_; }
  std::string AgentKey() const override { return agent_.agent_key; }

  Task<> Configure(Rootfs rootfs, MachineSpec spec) override {
    if (rootfs.layers.size() > protocol::kMaxLayers) co_return Fail(Code::kBadRequest, "too many layers");
    if (rootfs.snapshots.size() > protocol::kMaxSnapshotChain) co_return Fail(Code::kBadRequest, "too many snapshots");
    protocol::ConfigureReq request;
    request.machine = id_;
    request.layers = std::move(rootfs.layers);
    request.image_digest = std::move(rootfs.image_digest);
    request.hostname = std::move(spec.hostname);
    request.snapshots = std::move(rootfs.snapshots);
    if (rootfs.mounts.size() > protocol::kMaxMounts) co_return Fail(Code::kBadRequest, "too many mounts");
    for (DriveMount& m : rootfs.mounts)
      request.mounts.push_back({std::move(m.name), std::move(m.path), m.writable, m.uid, m.gid});
    request.memory = rootfs.memory;
    request.owner = Bounded(rootfs.owner);
    request.inherited_bytes = rootfs.inherited_bytes;
    const auto limit = rootfs.memory ? kMemoryLimit : kAnswerLimit;
    SB_CO_TRY(SpawnerReply reply, co_await connection_->Call(std::move(request), limit));
    SB_CO_TRYV(Expect<protocol::OkResp>(reply));
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
    protocol::SetLimitsReq request;
    request.machine = id_;
    request.limits = ToSpawner(limits);
    request.inherited_bytes = inherited_bytes;
    co_return co_await Ask(std::move(request));
  }

  Task<> Assign(Owner owner) override {
    protocol::AssignReq request;
    request.machine = id_;
    request.project = owner.project;
    request.project_bytes = owner.bytes;
    co_return co_await Ask(std::move(request));
  }

  Task<> SetDeadline(std::chrono::milliseconds from_now) override {
    protocol::SetDeadlineReq request;
    request.machine = id_;
    request.deadline_ms = from_now.count();
    co_return co_await Ask(std::move(request));
  }

  Task<Usage> GetUsage() override {
    protocol::UsageReq request;
    request.machine = id_;
    SB_CO_TRY(SpawnerReply reply, co_await connection_->Call(std::move(request)));
    SB_CO_TRY(auto usage, Expect<protocol::UsageResp>(reply));
    co_return FromSpawner(usage);
  }

  Task<uint64_t> DroppedPackets() override {
    protocol::UsageReq request;
    request.machine = id_;
    request.packets = true;
    SB_CO_TRY(SpawnerReply reply, co_await connection_->Call(std::move(request)));
    SB_CO_TRY(auto usage, Expect<protocol::UsageResp>(reply));
    co_return usage.dropped_packets;
  }

  Task<> Pause() override {
    protocol::PauseReq request;
    request.machine = id_;
    request.paused = true;
    co_return co_await Ask(std::move(request));
  }

  Task<> Resume() override {
    protocol::PauseReq request;
    request.machine = id_;
    request.paused = false;
    co_return co_await Ask(std::move(request));
  }

  Task<Usage> Destroy() override { return DestroyKeeping(""); }

  Task<Usage> DestroyKeeping(std::string snapshot) override {
    network_ = {};
    protocol::DestroyReq request;
    request.machine = id_;
    request.keep_as = std::move(snapshot);
    SB_CO_TRY(SpawnerReply reply, co_await connection_->Call(std::move(request)));
    connection_->MarkExited(id_);
    SB_CO_TRY(auto usage, Expect<protocol::UsageResp>(reply));
    co_return FromSpawner(usage);
  }

  Task<MemorySnapshot> SnapshotMemory(std::string snapshot, bool go_on) override {
    protocol::MemorySnapshotReq request;
    request.machine = id_;
    request.snapshot = std::move(snapshot);
    request.go_on = go_on;
    SB_CO_TRY(SpawnerReply reply, co_await connection_->Call(std::move(request), kMemoryLimit));
    SB_CO_TRY(auto taken, Expect<protocol::MemorySnapshotResp>(reply));
    MemorySnapshot out;
    out.pause = std::chrono::milliseconds(taken.pause_ms);
    out.memory_bytes = taken.memory_bytes;
    co_return out;
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
    SB_CO_TRYV(Expect<protocol::OkResp>(reply));
    co_return Result<>{};
  }

  Task<Fd> DialOne(uint16_t port, bool ipv6) {
    protocol::DialReq request;
    request.machine = id_;
    request.port = port;
    request.ipv6 = ipv6;
    SB_CO_TRY(SpawnerReply reply, co_await connection_->Call(std::move(request)));
    SB_CO_TRYV(Expect<protocol::OkResp>(reply));
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
  protocol::BootResp agent_;
  NetworkSockets network_;
};

}  // namespace

std::unique_ptr<Machine> NewSpawnerMachine(std::shared_ptr<Connection> connection, std::shared_ptr<ExitState> exit,
                                           std::string id, protocol::BootResp agent, NetworkSockets network) {
  return std::make_unique<SpawnerMachine>(std::move(connection), std::move(exit), std::move(id), std::move(agent),
                                          std::move(network));
}

}  // namespace sandbar::engine
