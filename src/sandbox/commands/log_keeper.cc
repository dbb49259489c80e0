// The output of commands on the host's disk, held to the caps of projects and of the server: what ended first goes
// first, and whoever reads it is told how much is missing. What runs is never cut for it.
#include "base/log.h"
#include "sandbox/commands/log_files.h"
#include "sandbox/service_impl.h"

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

Task<> ServiceImpl::TrimByPlan(std::vector<LogBudget::Plan> plans) {
  for (LogBudget::Plan& next : plans) {
    auto trim = [dir = core_.LogsDir(), plan = std::move(next)] {
      return TrimLogs(dir, plan.sessions, plan.budget, plan.running);
    };
    SB_CO_TRY(auto left, co_await core_.Files(std::move(trim)));
    for (const auto& [id, bytes] : left) core_.logs.Set(id, bytes);
  }
  co_return Result<>{};
}

Task<> ServiceImpl::KeepLogsBounded() {
  co_await asio::this_coro::throw_if_cancelled(false);
  auto counted = co_await CountAllLogs();
  if (!counted && !core_.closing) log::Warn("logs: {}", counted.error().message);
  core_.logs.OnOver([this] { trim_.Ask(); });
  while (!core_.closing) {
    auto projects = core_.logs.OverCap();
    auto trimmed = co_await TrimByPlan(std::move(projects));
    auto all = core_.logs.OverTotal();
    if (trimmed) trimmed = co_await TrimByPlan(std::move(all));
    if (!trimmed && !core_.closing) log::Warn("logs: {}", trimmed.error().message);
    auto again = co_await trim_.Wait(kLookEvery);
    if (!again) break;
  }
  core_.logs.OnOver({});
  co_return Result<>{};
}

}  // namespace sandbar::sandbox
