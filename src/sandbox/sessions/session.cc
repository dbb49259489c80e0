#include "sandbox/sessions/session.h"

#include "base/ids.h"
#include "base/log.h"
#include "sandbox/engine_selector.h"
#include "sandbox/sessions/pool.h"

namespace sandbar::sandbox {

Session::Session(Core* core, store::Session row, std::map<std::string, std::string> env, StopRequest stop)
    : stop_(std::move(stop)),
      state_(core, std::move(row), std::move(env)),
      started_(std::make_shared<SharedResult<bool>>(core->ex)),
      earlier_ingress_(state_.row.carried_ingress),
      earlier_egress_(state_.row.carried_egress) {}

bool Session::CountBytes() {
  const egress::EgressCounters now = state_.connected->egress().counters();
  const uint64_t in = earlier_ingress_ + now.ingress_bytes + previews_->written;
  const uint64_t out = earlier_egress_ + now.egress_bytes + previews_->read;
  const bool changed = in != state_.row.carried_ingress || out != state_.row.carried_egress;
  state_.row.carried_ingress = in;
  state_.row.carried_egress = out;
  return changed;
}

Task<> Session::Run(std::unique_ptr<ConnectedMachine> machine, std::optional<SourceSpec> source,
                    std::optional<RestoredMemory> restored) {
  state_.connected = std::move(machine);
  state_.connected->Identify(state_.row);
  if (restored) {
    SB_CO_TRYV(co_await TakeOver(*std::move(restored)));
  } else {
    state_.connected->Listen(this);
  }
  // A pooled machine's row was written as running when it was claimed.
  const bool saved = state_.row.status == store::Status::kRunning;
  if (!saved) {
    state_.row.status = store::Status::kRunning;
    state_.row.started_at = NowMs();
  }
  SB_CO_TRYV(co_await clock_.Arm());
  if (source) {
    SB_CO_TRYV(co_await source_.Run(*std::move(source)));
  }
  network_.Load();
  SB_CO_TRYV(co_await network_.TrustCa(network_.policy()));
  if (!saved) {
    // A resumed session becomes the sandbox's current one at this moment and not before.
    store::SandboxEdit current = [row = state_.row](store::Sandbox& s) -> Result<> {
      // It may demand more since this one was begun.
      if (!Meets(s.isolation, row.engine, row.isolation_class, row.nesting))
        return Fail(Code::kConflict, "the sandbox demands a stronger isolation since; start it again");
      s.current_session = row.id;
      return {};
    };
    SB_CO_TRYV(co_await state_.SaveWith(std::move(current)));
  }
  // Only a policy that is on record may open the network.
  network_.Apply();
  SB_CO_TRYV(co_await TellInherited());
  state_.phase = Phase::kRunning;
  StartClock();
  started_->Set(true);
  co_return Result<>{};
}

Task<> Session::Reattach(std::vector<store::Command> unfinished, bool present, bool alive) {
  SB_CO_TRYV(co_await commands_.Recover(unfinished));
  if (!present) co_return Fail(Code::kNotFound, "it was gone when the server started");
  network_.Load();
  SB_CO_TRY(state_.connected, co_await ConnectedMachine::Attach(state_.core, state_.row, network_.policy()));
  if (!alive) co_return Fail(Code::kClosed, "it ended while the server was down");
  // It may stand still already, and then its agent does not answer.
  if (state_.row.status == store::Status::kStopping && !state_.row.snapshot_memory.empty()) {
    state_.phase = Phase::kStopping;
    started_->Set(true);
    co_return Result<>{};
  }
  state_.connected->Listen(this);
  SB_CO_TRYV(co_await state_.connected->Connect());
  // Commands that the agent has never heard of, or has forgotten, will not report.
  commands_.EndUnknown(state_.connected->link()->known_commands());
  contexts_.KillOldDrivers();
  state_.phase = state_.row.status == store::Status::kRunning ? Phase::kRunning : Phase::kStopping;
  if (state_.phase == Phase::kRunning) {
    SB_CO_TRYV(co_await clock_.Arm());
    // What was killed for memory before is known already.
    auto usage = co_await state_.connected->machine().GetUsage();
    if (usage) state_.oom_kills = usage->oom_kills;
    SB_CO_TRYV(co_await TellInherited());
    StartClock();
    network_.TrustCaAgain();
  }
  started_->Set(true);
  co_return Result<>{};
}

void Session::StartClock() {
  auto expired = [this](std::string why) { stop_(StopCause::kTimeout, std::move(why)); };
  state_.tasks.Spawn(clock_.Run(std::move(expired), [this] { return SaveBytes(); }));
}

Task<> Session::SaveBytes() {
  if (CountBytes()) co_await state_.Save();
  co_return Result<>{};
}

std::shared_ptr<void> Session::Use(std::shared_ptr<Session> session) {
  session->clock_.BeginUse();
  Session* raw = session.get();
  return {raw, [session = std::move(session)](void*) { session->clock_.EndUse(); }};
}

Task<> Session::SetInherited(uint64_t bytes) {
  inherited_bytes_ = bytes;
  corrected_ = true;
  // A machine that still starts is told by Run or Reattach.
  if (state_.connected && state_.phase == Phase::kRunning) co_await TellInherited();
  co_return Result<>{};
}

Task<> Session::TellInherited() {
  // SetInherited may be called again while SetLimits is under way.
  while (std::exchange(corrected_, false)) {
    const engine::Limits limits = BootOf(*state_.core, state_.row.engine, state_.row.vcpus).limits;
    auto told = co_await state_.connected->machine().SetLimits(limits, inherited_bytes_);
    if (!told) log::Warn("disk limit of {}: {}", state_.row.id, told.error().message);
  }
  co_return Result<>{};
}

void Session::OnOutput(const std::string& command, uint64_t offset, uint8_t stream, std::string_view bytes) {
  source_.OnOutput(command, bytes);
  if (commands_.OnOutput(command, offset, stream, bytes)) return;
  contexts_.OnOutput(command, offset, stream, bytes);
  // Output of the source, of an interpreter (bounded where it is kept), or of a command whose start failed on our side.
  if (auto link = state_.LinkIfAny()) link->Ack(command, offset + bytes.size());
}

void Session::OnGap(const std::string& command, uint64_t offset, uint64_t bytes) {
  commands_.OnGap(command, offset, bytes);
  contexts_.OnGap(command, offset, bytes);
}

void Session::OnExit(const protocol::Exit& exit) {
  source_.OnExit(exit);
  contexts_.OnExit(exit);
  if (commands_.OnExit(exit)) return;
  if (auto link = state_.LinkIfAny()) link->AckExit(exit.id);
}

void Session::OnConnected() {
  commands_.OnConnected();
}

void Session::OnLost(const std::string& why) {
  source_.OnLost(why);
  // Past the deadline it was the spawner, whether our own clock was late or the server was away.
  if (NowMs() >= clock_.Deadline()) {
    stop_(StopCause::kTimeout, "timeout");
  } else {
    stop_(StopCause::kLost, "machine lost: " + why);
  }
}

}  // namespace sandbar::sandbox
