#include "sandbox/commands/log_keeper.h"

#include "base/log.h"
#include "sandbox/commands/log_files.h"

namespace sandbar::sandbox {
namespace {

constexpr std::chrono::minutes kLookEvery{10};

}  // namespace

Task<> LogKeeper::CountAll() {
  auto count = [dir = core_->LogsDir()] { return sandbox::CountLogs(dir); };
  auto found = co_await core_->Files(std::move(count));
  auto owners = [found](store::Journal& journal) -> Result<std::map<std::string, std::string>> {
    std::map<std::string, std::string> projects;
    for (const auto& [id, bytes] : found) {
      SB_TRY(auto session, journal.FindSession(id));
      projects[id] = session ? session->team + "/" + session->project : std::string();
    }
    return projects;
  };
  SB_CO_TRY(auto projects, co_await core_->Journal(std::move(owners)));
  for (const auto& [id, bytes] : found) {
    core_->logs.Own(id, projects[id]);
    core_->logs.Set(id, bytes);
  }
  co_return Result<>{};
}

Task<> LogKeeper::Trim(std::vector<LogBudget::Plan> plans) {
  for (LogBudget::Plan& next : plans) {
    auto trim = [dir = core_->LogsDir(), plan = std::move(next)] {
      return TrimLogs(dir, plan.sessions, plan.budget, plan.running);
    };
    SB_CO_TRY(auto left, co_await core_->Files(std::move(trim)));
    for (const auto& [id, bytes] : left) core_->logs.Set(id, bytes);
  }
  co_return Result<>{};
}

Task<> LogKeeper::Run() {
  co_await asio::this_coro::throw_if_cancelled(false);
  auto counted = co_await CountAll();
  if (!counted && !core_->closing) log::Warn("logs: {}", counted.error().message);
  core_->logs.OnOver([this] { loop_.Wake(); });
  while (!core_->closing) {
    auto projects = core_->logs.OverCap();
    auto trimmed = co_await Trim(std::move(projects));
    auto all = core_->logs.OverTotal();
    if (trimmed) trimmed = co_await Trim(std::move(all));
    if (!trimmed && !core_->closing) log::Warn("logs: {}", trimmed.error().message);
    auto again = co_await loop_.Wait(kLookEvery);
    if (!again) break;
  }
  core_->logs.OnOver({});
  co_return Result<>{};
}

}  // namespace sandbar::sandbox
