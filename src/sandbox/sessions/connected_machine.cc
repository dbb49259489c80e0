#include "sandbox/sessions/connected_machine.h"

#include <cerrno>

#include "base/ids.h"
#include "base/log.h"
#include "sandbox/shared_result.h"

namespace sandbar::sandbox {
namespace {

constexpr int kReconnects = 6;
constexpr std::chrono::milliseconds kFirstPause{20};
constexpr std::chrono::milliseconds kFirstHelloTimeout{1'500};
// For agents of class 1: their guests write into the host's page cache, so a silent agent holds no files back. A guest
// with a kernel of its own may hold files back and be slow; its agent gets the longer default of LinkDeadlines.
constexpr std::chrono::milliseconds kSilence{3'000};

// What the caller is told of a machine with which no connection was made: the words are ours, not the guest's.
Error NotUp(Error why) {
  const bool nobody_listens = why.sys_errno == ECONNREFUSED || why.sys_errno == ENOENT;
  if (why.code == Code::kIo || why.code == Code::kClosed || nobody_listens)
    why.message = "it ended before its agent answered";
  if (why.code == Code::kTimeout) why.message = "its agent did not answer in time";
  if (why.code == Code::kIo || why.code == Code::kProtocol) why.code = Code::kUnavailable;
  return std::move(why).Context("the machine did not come up");
}

}  // namespace

ConnectedMachine::ConnectedMachine(Core* core, std::unique_ptr<engine::Machine> machine)
    : core_(core),
      machine_(std::move(machine)),
      interceptor_(core->ex),
      hello_timeout_(core->config.agent_timeout),
      agent_key_(machine_->AgentKey()),
      tasks_(core->ex) {}

Task<std::unique_ptr<ConnectedMachine>> ConnectedMachine::Boot(Core* core, engine::BootRequest request,
                                                               engine::Rootfs rootfs) {
  auto booting = core->deps.engine->Boot(request);
  co_return co_await Start(core, std::move(request), std::move(rootfs), std::move(booting));
}

Task<std::unique_ptr<ConnectedMachine>> ConnectedMachine::Start(Core* core, engine::BootRequest request,
                                                                engine::Rootfs rootfs,
                                                                Task<std::unique_ptr<engine::Machine>> booting,
                                                                StepTimes* steps) {
  rootfs.format = request.format;
  const bool own_kernel = core->engines.Of(request.engine).own_kernel;
  const bool boots_slowly = request.format == engine::RootfsFormat::kBlock;
  SB_CO_TRY(auto machine, co_await std::move(booting));
  if (steps != nullptr) steps->Done("boot");
  auto connected = std::make_unique<ConnectedMachine>(core, std::move(machine));
  connected->Serve(egress::DenyAll());
  connected->has_own_kernel_ = own_kernel;
  connected->restored_ = rootfs.memory;
  // An agent out of a saved memory has the key of the machine that was saved.
  if (rootfs.memory) connected->agent_key_.clear();
  if (boots_slowly) connected->hello_timeout_ = std::chrono::milliseconds(core->config.kernel_start_ms);
  engine::MachineSpec spec;
  // The same for all: a pooled machine is configured before anyone has named it.
  spec.hostname = "sandbox";
  auto configured = co_await connected->machine_->Configure(std::move(rootfs), std::move(spec));
  if (steps != nullptr) steps->Done("configure");
  if (configured) {
    configured = co_await connected->Connect();
    if (steps != nullptr) steps->Done("connect");
    if (!configured) configured = std::unexpected(NotUp(std::move(configured).error()));
  }
  if (configured) co_return connected;
  if (core->closing) {
    co_await connected->Close();
    co_return std::unexpected(std::move(configured).error());
  }
  auto destroyed = co_await connected->Destroy();
  if (!destroyed) log::Error("machine {}: not destroyed: {}", connected->id(), destroyed.error().message);
  co_return std::unexpected(std::move(configured).error());
}

Task<std::unique_ptr<ConnectedMachine>> ConnectedMachine::Attach(Core* core, store::Session owner,
                                                                 egress::PolicyRef policy) {
  SB_CO_TRY(auto machine, co_await core->deps.engine->Attach(owner.machine_id));
  auto connected = std::make_unique<ConnectedMachine>(core, std::move(machine));
  // On a busy host such a machine takes its time to answer. Others may not hold up the server's start for so long.
  const engine::EngineInfo info = core->engines.Of(owner.engine);
  connected->restored_ = info.restores_slowly;
  connected->has_own_kernel_ = info.own_kernel;
  connected->Identify(owner);
  connected->Serve(policy);
  co_return connected;
}

// QEMU may look at what we have sent only when something wakes it, which can take minutes when the guest is idle. A new
// connection wakes it.
Task<> ConnectedMachine::DialRestored() {
  hello_timeout_ = kFirstHelloTimeout;
  auto dialled = co_await Dial();
  while (!dialled && dialled.error().code == Code::kTimeout &&
         hello_timeout_ < std::chrono::milliseconds(core_->config.kernel_start_ms) && !closing_) {
    hello_timeout_ *= 2;
    dialled = co_await Dial();
  }
  co_return dialled;
}

Task<> ConnectedMachine::Connect() {
  auto dial = restored_ ? DialRestored() : Dial();
  SB_CO_TRYV(co_await std::move(dial));
  tasks_.Spawn(WatchExit());
  co_return Result<>{};
}

Task<> ConnectedMachine::Rekey(std::vector<protocol::Renamed> commands, MachineListener* listener) {
  protocol::Rekey rekey;
  rekey.entropy.resize(protocol::kMaxEntropy);
  FillRandom(rekey.entropy.data(), rekey.entropy.size());
  rekey.clock_ns = static_cast<uint64_t>(NowMs()) * 1'000'000;
  rekey.commands = std::move(commands);
  rekey.machine_key = machine_->AgentKey();
  auto link = link_;
  if (!link) co_return Fail(Code::kUnavailable, "the agent of the restored machine does not answer");
  SB_CO_TRYV(co_await link->Rekey(std::move(rekey)));
  link_ = nullptr;
  agent_key_ = machine_->AgentKey();
  co_await link->Close();
  Listen(listener);
  co_return co_await DialRestored();
}

void ConnectedMachine::Identify(const store::Session& owner) {
  egress::InterceptorOptions options;
  // The session's own: after a restart the machine still trusts what it was given.
  options.seed = core_->vault.Derive("machine CA " + owner.id);
  options.identity = {owner.team, owner.project, owner.id, owner.sandbox};
  options.signer = core_->deps.signer;
  options.upstream_ca_file = core_->deps.upstream_ca;
  options.matching = &core_->match_pool;
  interceptor_.Identify(std::move(options));
}

void ConnectedMachine::Serve(egress::PolicyRef policy) {
  engine::NetworkSockets sockets = machine_->TakeNetwork();
  egress_ = egress::MakeEgress(core_->ex, std::move(sockets.tcp_listener), std::move(sockets.dns), std::move(policy),
                               core_->deps.egress, &interceptor_);
}

void ConnectedMachine::Listen(MachineListener* listener) {
  listener_ = listener;
  if (listener_ != nullptr && !lost_.empty()) listener_->OnLost(std::exchange(lost_, {}));
}

Task<> ConnectedMachine::Dial() {
  auto dial = machine_->Connect();
  SB_CO_TRY(auto socket, co_await WithTimeout(std::move(dial), core_->config.agent_timeout));
  connecting_ = true;
  closed_early_ = false;
  engine::LinkDeadlines deadlines;
  deadlines.hello = hello_timeout_;
  if (!has_own_kernel_) deadlines.silence = kSilence;
  std::string key = agent_key_;
  auto open = engine::OpenGuestLink(std::move(socket), this, deadlines, std::move(key));
  auto link = co_await WithTimeout(std::move(open), hello_timeout_);
  connecting_ = false;
  if (!link) co_return std::unexpected(std::move(link).error());
  link_ = *std::move(link);
  hello_timeout_ = core_->config.agent_timeout;
  if (closed_early_) co_return Fail(Code::kClosed, "the agent closed the connection at once");
  if (listener_ != nullptr) listener_->OnConnected();
  co_return Result<>{};
}

Task<Fd> ConnectedMachine::DialPort(uint16_t port) {
  auto fd = co_await machine_->Dial(port);
  if (fd || fd.error().code != Code::kUnsupported) co_return fd;
  auto link = link_;
  if (!link) co_return Fail(Code::kUnavailable, "no connection to the agent");
  fd = co_await link->Dial(port);
  co_return fd;
}

Task<> ConnectedMachine::Reconnect() {
  co_await asio::this_coro::throw_if_cancelled(false);
  auto pause = kFirstPause;
  std::string why = "the agent does not answer";
  for (int i = 0; i < kReconnects && !closing_; ++i) {
    // The closed link is joined before a new one may speak: its late events would be taken for the new one's.
    if (auto old = std::exchange(link_, nullptr)) co_await old->Close();
    auto r = co_await Dial();
    if (r) co_return Result<>{};
    why = r.error().message;
    if (r.error().code == Code::kCancelled) break;
    auto slept = co_await Sleep(pause);
    if (!slept) break;
    pause *= 2;
  }
  if (!closing_) co_await Lose("no connection to the agent: " + why);
  co_return Result<>{};
}

Task<> ConnectedMachine::WatchExit() {
  co_await asio::this_coro::throw_if_cancelled(false);
  auto r = co_await machine_->WaitExit();
  if (closing_) co_return Result<>{};
  if (!r && r.error().code == Code::kCancelled) co_return Result<>{};
  std::string why = r ? "it ended by itself" : r.error().message;
  co_await Lose(std::move(why));
  co_return Result<>{};
}

Task<> ConnectedMachine::Lose(std::string why) {
  if (has_own_kernel_) {
    // What the host kills for want of memory there is the guest's kernel.
    auto usage = co_await machine_->GetUsage();
    out_of_memory_ = usage && usage->oom_kills > 0;
    if (out_of_memory_) why = "out of memory: a kernel of its own ends as a whole";
  }
  Lost(why);
  co_return Result<>{};
}

void ConnectedMachine::Lost(const std::string& why) {
  if (closing_) return;
  if (listener_ == nullptr) {
    lost_ = why;
    return;
  }
  listener_->OnLost(why);
}

asio::awaitable<void> ConnectedMachine::Close() {
  closing_ = true;
  co_await tasks_.Close();
  // The pointer stays: calls in flight hold it too and see it fail.
  if (link_) co_await link_->Close();
  if (egress_) co_await egress_->Close();
}

Task<engine::Usage> ConnectedMachine::Destroy(std::string keep_as) {
  co_await Close();
  Result<engine::Usage> usage;
  auto pause = kFirstPause;
  for (int i = 0; i < kReconnects; ++i) {
    auto destroy = keep_as.empty() ? machine_->Destroy() : machine_->DestroyKeeping(keep_as);
    usage = co_await std::move(destroy);
    if (usage || usage.error().code == Code::kCancelled || core_->closing) break;
    if (usage.error().code == Code::kNotFound || usage.error().code == Code::kConflict) break;
    log::Warn("machine {}: destroy: {}", id(), usage.error().message);
    auto slept = co_await Sleep(pause);
    if (!slept) break;
    pause *= 2;
  }
  co_return usage;
}

void ConnectedMachine::OnOutput(const std::string& command, uint64_t offset, uint8_t stream, std::string_view bytes) {
  if (listener_ != nullptr) listener_->OnOutput(command, offset, stream, bytes);
}

void ConnectedMachine::OnGap(const std::string& command, uint64_t offset, uint64_t bytes) {
  if (listener_ != nullptr) listener_->OnGap(command, offset, bytes);
}

void ConnectedMachine::OnExit(const protocol::Exit& exit) {
  if (listener_ != nullptr) listener_->OnExit(exit);
}

void ConnectedMachine::OnClosed(const Error& why) {
  // Before Dial has the link in hand there is nothing to replace: it reports the failure itself.
  if (connecting_) closed_early_ = true;
  if (closing_ || connecting_) return;
  // An agent that breaks the protocol is not given a second chance: it is hostile or broken.
  if (why.code == Code::kProtocol) {
    Lost(why.message);
    return;
  }
  tasks_.Spawn(Reconnect());
}

}  // namespace sandbar::sandbox
