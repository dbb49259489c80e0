#include "sandbox/sessions/source_fetch.h"

#include "base/ids.h"
#include "sandbox/commands/environment.h"

namespace sandbar::sandbox {
namespace {

constexpr size_t kKeptOutput = 8 << 10;

}  // namespace

void SourceFetch::OnOutput(const std::string& command, std::string_view bytes) {
  if (!running_ || running_->id != command) return;
  std::string& output = running_->output;
  output += bytes;
  // Keeps the end.
  if (output.size() > 2 * kKeptOutput) output.erase(0, output.size() - kKeptOutput);
}

void SourceFetch::OnExit(const protocol::Exit& exit) {
  if (!running_ || running_->id != exit.id) return;
  running_->exit_code = exit.code;
  running_->changed.Notify();
}

void SourceFetch::OnLost(const std::string& why) {
  if (!running_) return;
  running_->lost = why;
  running_->changed.Notify();
}

Task<> SourceFetch::AwaitExit() {
  while (!running_->exit_code && running_->lost.empty()) {
    SB_CO_TRYV(co_await running_->changed.Wait());
  }
  if (!running_->exit_code) co_return Fail(Code::kUnavailable, "the machine was lost: " + running_->lost);
  co_return Result<>{};
}

Task<> SourceFetch::Run(SourceSpec spec) {
  SB_CO_TRY(SourcePlan plan, PlanSource(spec));
  SB_CO_TRYV(co_await network_->TrustCa(plan.policy));
  auto link = state_->connected->link();
  if (!link) co_return Fail(Code::kUnavailable, "the sandbox is reconnecting; try again");
  running_ = std::make_unique<Running>(state_->core->ex);
  running_->id = NewId("src_");
  protocol::Exec exec;
  exec.id = running_->id;
  exec.argv = plan.argv;
  exec.env = MakeEnvironment(state_->row, {}, {}, false);
  exec.cwd = state_->row.cwd;
  exec.uid = state_->row.uid;
  exec.gid = state_->row.gid;
  exec.user = state_->row.user;
  state_->connected->egress().SetPolicy(plan.policy);
  auto started = co_await link->Exec(std::move(exec));
  Result<> ended;
  if (started) {
    const std::chrono::milliseconds limit(state_->row.timeout_ms);
    auto wait = AwaitExit();
    ended = co_await WithTimeout(std::move(wait), limit);
  }
  state_->connected->egress().SetPolicy(egress::DenyAll());
  auto run = std::move(running_);
  if (!started) co_return std::unexpected(std::move(started).error().Context("source"));
  if (!ended && ended.error().code == Code::kTimeout) {
    link->Kill(run->id, 9);
    co_return Fail(Code::kBadRequest, "source: it was not there when the sandbox's timeout ended");
  }
  if (!ended) co_return std::unexpected(std::move(ended).error().Context("source"));
  if (*run->exit_code != 0) co_return Fail(Code::kBadRequest, SourceMessage(spec, *run->exit_code, run->output));
  co_return Result<>{};
}

}  // namespace sandbar::sandbox
