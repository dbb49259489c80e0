// Who uses a session now, and what sessions have used.
#include <algorithm>

#include "base/ids.h"
#include "sandbox/service_impl.h"

namespace sandbar::sandbox {
namespace {

store::ProjectUsage& EntryOf(std::vector<store::ProjectUsage>& all, const std::string& team,
                             const std::string& project) {
  auto it = std::ranges::find_if(all, [&](const auto& u) { return u.team == team && u.project == project; });
  if (it != all.end()) return *it;
  store::ProjectUsage& added = all.emplace_back();
  added.team = team;
  added.project = project;
  return added;
}

}  // namespace

std::shared_ptr<void> ServiceImpl::Use(const Scope& scope, const std::string& session) {
  const Live* live = LiveOf(session);
  if (live == nullptr) return nullptr;
  const store::Session& row = live->session->row();
  return InScope(scope, row.team, row.project) ? Session::Use(live->session) : nullptr;
}

std::optional<store::Session> ServiceImpl::Running(const std::string& session) const {
  const Live* live = LiveOf(session);
  if (live == nullptr || live->session->phase() != Session::Phase::kRunning) return std::nullopt;
  return live->session->row();
}

Task<std::vector<store::ProjectUsage>> ServiceImpl::Usage(Scope scope) {
  auto read = [](store::Store& store) { return store.Usage(); };
  SB_CO_TRY(auto report, co_await core_.Db(std::move(read)));
  // Copies: the table changes while we wait.
  std::vector<std::shared_ptr<Session>> running;
  for (const auto& [id, live] : sessions_) {
    if (live.session->phase() == Session::Phase::kRunning) running.push_back(live.session);
  }
  for (const auto& session : running) {
    if (session->phase() != Session::Phase::kRunning) continue;
    auto used = co_await session->live()->machine().GetUsage();
    const store::Session& row = session->row();
    store::ProjectUsage& entry = EntryOf(report, row.team, row.project);
    if (used) entry.cpu_ms += used->cpu_ns / 1000000;
    const int64_t age = std::max<int64_t>(NowMs() - row.started_at.value_or(NowMs()), 0);
    entry.memory_mb_ms += static_cast<uint64_t>(row.memory_mb) * static_cast<uint64_t>(age);
    entry.ingress += row.carried_ingress;
    entry.egress += row.carried_egress;
  }
  std::erase_if(report, [&](const auto& u) { return !InScope(scope, u.team, u.project); });
  co_return report;
}

}  // namespace sandbar::sandbox
