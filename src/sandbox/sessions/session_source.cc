// A session's source: fetched by a command of our own, which no caller can see, before the session runs.
#include "base/ids.h"
#include "sandbox/commands/environment.h"
#include "sandbox/sessions/session.h"

namespace sandbar::sandbox {
namespace {

constexpr size_t kKeptOutput = 8 << 10;

}  // namespace

void Session::SourceRun::Take(std::string_view bytes) {
  output += bytes;
  if (output.size() > 2 * kKeptOutput) output.erase(0, output.size() - kKeptOutput);
}

Task<> Session::AwaitSource() {
  while (!source_->exit_code && source_->lost.empty()) {
    SB_CO_TRYV(co_await source_->changed.Wait());
  }
  if (!source_->exit_code) co_return Fail(Code::kUnavailable, "the machine was lost: " + source_->lost);
  co_return Result<>{};
}

Task<> Session::FetchSource(SourceSpec spec) {
  SB_CO_TRY(SourcePlan plan, PlanSource(spec));
  SB_CO_TRYV(co_await TrustCa(plan.policy));
  auto link = connected_->link();
  if (!link) co_return Fail(Code::kUnavailable, "the sandbox is reconnecting; try again");
  source_ = std::make_unique<SourceRun>(core_->ex);
  source_->id = NewId("src_");
  protocol::Exec exec;
  exec.id = source_->id;
  exec.argv = plan.argv;
  exec.env = MakeEnvironment(row_, {}, {}, false);
  exec.cwd = row_.cwd;
  exec.uid = row_.uid;
  exec.gid = row_.gid;
  exec.user = row_.user;
  connected_->egress().SetPolicy(plan.policy);
  auto started = co_await link->Exec(std::move(exec));
  Result<> ended;
  if (started) {
    const std::chrono::milliseconds limit(row_.timeout_ms);
    auto wait = AwaitSource();
    ended = co_await WithTimeout(std::move(wait), limit);
  }
  connected_->egress().SetPolicy(egress::DenyAll());
  auto run = std::move(source_);
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
