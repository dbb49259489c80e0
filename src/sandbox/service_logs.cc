// The output of commands on the host's disk, held to the caps of projects and of the server: what ended first goes
// first, and whoever reads it is told how much is missing. What runs is never cut for it.
#include "base/log.h"
#include "sandbox/service_impl.h"
#include "sandbox/session_logs.h"

namespace sandbar::sandbox {
namespace {

constexpr std::chrono::minutes kLookEvery{10};

}  // namespace

// What earlier servers left. What the database does not know belongs to nobody, and counts for the server only.
Task<> ServiceImpl::CountAllLogs() {
  auto count = [dir = core_.LogsDir()] { return sandbox::CountLogs(dir); };
  auto found = co_await core_.Files(std::move(count));
  auto owners = [found](store::Store& store) -> Result<std::map<std::string, std::string>> {
    std::map<std::string, std::string> projects;
    for (const auto& [id, bytes] : found) {
      SB_TRY(auto session, store.FindSession(id));
      projects[id] = session ? session->team + "/" + session->project : std::string();
    }
    return projects;
  };
  SB_CO_TRY(auto projects, co_await core_.Db(std::move(owners)));
  for (const auto& [id, bytes] : found) {
    core_.logs.Own(id, projects[id]);
    core_.logs.Set(id, bytes);
  }
  co_return Result<>{};
}

// True: there may be more to trim.
Task<bool> ServiceImpl::TrimAllLogs() {
  auto plan = core_.logs.Over(core_.config.project.log_bytes, core_.config.log_total_bytes);
  if (!plan) co_return false;
  const uint64_t budget = plan->budget;
  auto trim = [dir = core_.LogsDir(), plan = *std::move(plan)] {
    return TrimLogs(dir, plan.sessions, plan.budget, plan.running);
  };
  SB_CO_TRY(auto left, co_await core_.Files(std::move(trim)));
  uint64_t total = 0;
  for (const auto& [id, bytes] : left) {
    core_.logs.Set(id, bytes);
    total += bytes;
  }
  // What runs is what is left: no use in looking again before something has changed.
  co_return total <= budget;
}

Task<> ServiceImpl::KeepLogsBounded() {
  co_await asio::this_coro::throw_if_cancelled(false);
  auto counted = co_await CountAllLogs();
  if (!counted && !core_.closing) log::Warn("logs: {}", counted.error().message);
  core_.logs.OnGrowth([this] { trim_.Ask(); });
  while (!core_.closing) {
    auto more = co_await TrimAllLogs();
    if (!more && !core_.closing) log::Warn("logs: {}", more.error().message);
    if (more && *more) continue;
    auto again = co_await trim_.Wait(kLookEvery);
    if (!again) break;
  }
  core_.logs.OnGrowth({});
  co_return Result<>{};
}

}  // namespace sandbar::sandbox
