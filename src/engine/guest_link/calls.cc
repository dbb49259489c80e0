#include <algorithm>

#include "engine/guest_link/core.h"

namespace sandbar::engine {
namespace {

constexpr std::chrono::milliseconds kBeforeProbe{200};  // most machines are quiet by then

bool HasNul(const std::vector<std::string>& strings) {
  return std::any_of(strings.begin(), strings.end(), [](const auto& s) { return s.find('\0') != std::string::npos; });
}

Result<> CheckSize(protocol::TerminalSize size) {
  if (size.cols <= protocol::kMaxTerminalSide && size.rows <= protocol::kMaxTerminalSide) return {};
  return Fail(Code::kBadRequest,
              "a terminal has at most " + std::to_string(protocol::kMaxTerminalSide) + " columns and rows");
}

Result<> Check(const protocol::Exec& request) {
  if (request.id.empty() || request.id.size() > protocol::kMaxCommandId)
    return Fail(Code::kBadRequest, "bad command id");
  if (request.argv.empty()) return Fail(Code::kBadRequest, "empty command");
  if (HasNul(request.argv) || HasNul(request.env)) return Fail(Code::kBadRequest, "an argument contains NUL");
  if (request.user.size() > protocol::kMaxUserName) return Fail(Code::kBadRequest, "user name is too long");
  SB_TRYV(CheckPath(request.cwd, "cwd"));
  if (request.terminal) SB_TRYV(CheckSize(*request.terminal));
  if (protocol::Encode(request).size() > protocol::kMaxFrame)
    return Fail(Code::kTooLarge, "command and environment too large");
  return {};
}

}  // namespace

Result<> CheckPath(const std::string& path, std::string_view what) {
  if (path.size() > protocol::kMaxPath) return Fail(Code::kBadRequest, std::string(what) + " is too long");
  if (path.find('\0') != std::string::npos) return Fail(Code::kBadRequest, std::string(what) + " contains NUL");
  return {};
}

Task<> CallExec(std::shared_ptr<LinkCore> core, protocol::Exec request) {
  if (auto good = Check(request); !good) co_return good;
  if (core->closed()) co_return std::unexpected(core->Unavailable());
  if (request.standard_input) SB_CO_TRYV(core->Require(protocol::kStandardInput));
  if (request.terminal) SB_CO_TRYV(core->Require(protocol::kTerminals));
  if (core->commands.size() >= protocol::kMaxCommands) co_return Fail(Code::kTooMany, "too many commands at once");
  auto deadline = LinkClock::now() + core->limits().call;
  SB_CO_TRYV(co_await core->WaitRoom(deadline));
  LinkCore::ExecCall call{Waiter(core->executor()), std::nullopt};
  auto [it, fresh] = core->commands.try_emplace(request.id);
  if (!fresh) co_return Fail(Code::kConflict, "command id is in use");
  it->second.starting = &call;
  if (request.TakesInput()) it->second.input.emplace();
  // However this coroutine ends, the core must not keep a pointer into it.
  struct Detach {
    LinkCore& core;
    const std::string& id;
    LinkCore::ExecCall* call;
    ~Detach() {
      auto at = core.commands.find(id);
      if (call->result || at == core.commands.end() || at->second.starting != call) return;
      at->second.starting = nullptr;
      at->second.abandoned = true;
      core.Kill(id, 9);
    }
  } detach{*core, request.id, &call};
  core->Send(request);
  SB_CO_TRYV(co_await call.waiter.Wait(deadline));
  co_return *call.result;
}

Task<> CallResize(std::shared_ptr<LinkCore> core, std::string command, protocol::TerminalSize size) {
  if (auto good = CheckSize(size); !good) co_return good;
  SB_CO_TRYV(core->Require(protocol::kTerminals));
  SB_CO_TRYV(co_await core->WaitRoom(LinkClock::now() + core->limits().call));
  if (!core->commands.contains(command)) co_return Fail(Code::kNotFound, "no such command");
  core->Send(protocol::Resize{std::move(command), size});
  co_return Result<>{};
}

Task<protocol::Quiesced> CallQuiesce(std::shared_ptr<LinkCore> core, QuiesceRequest request) {
  if (core->closed()) co_return std::unexpected(core->Unavailable());
  if (core->quiesce != nullptr) co_return Fail(Code::kConflict, "the machine is being quiesced already");
  LinkCore::QuiesceCall call{Waiter(core->executor()), std::nullopt};
  struct Detach {
    LinkCore& core;
    ~Detach() { core.quiesce = nullptr; }
  } detach{*core};
  core->quiesce = &call;
  core->Send(protocol::Quiesce{static_cast<uint64_t>(std::max<int64_t>(request.grace.count(), 0)), request.go_on});
  const auto silence = request.silence.count() > 0 ? request.silence : core->limits().silence;
  const auto deadline = LinkClock::now() + request.grace + core->limits().call;
  // Writing files out may take long, and the agent reports only its end. Probes tell a busy agent from a silent one.
  auto pause = std::min(kBeforeProbe, silence);
  std::shared_ptr<LinkCore::Stream> probe;
  LinkClock::time_point asked;
  for (;;) {
    auto woken = co_await call.waiter.Wait(std::min(deadline, LinkClock::now() + pause));
    if (call.result) co_return *call.result;
    if (core->closed()) co_return std::unexpected(core->Unavailable());
    const bool late = !woken && woken.error().code == Code::kTimeout && LinkClock::now() < deadline;
    if (!late) co_return std::unexpected(woken ? core->Unavailable() : std::move(woken).error());
    if (probe && !probe->end && !core->HeardSince(asked))
      co_return Fail(Code::kTimeout, "the machine's agent gives no sign of life");
    asked = LinkClock::now();
    if (!probe || probe->end) probe = core->Probe();
    pause = silence;
  }
}

Task<> CallRekey(std::shared_ptr<LinkCore> core, protocol::Rekey request) {
  if (core->closed()) co_return std::unexpected(core->Unavailable());
  Waiter answered(core->executor());
  struct Detach {
    LinkCore& core;
    ~Detach() { core.rekeying = nullptr; }
  } detach{*core};
  core->rekeying = &answered;
  core->Send(request);
  SB_CO_TRYV(co_await answered.Wait(LinkClock::now() + core->limits().call));
  if (core->closed()) co_return std::unexpected(core->Unavailable());
  co_return Result<>{};
}

}  // namespace sandbar::engine
