#include "sandbox/log_budget.h"

#include <algorithm>

namespace sandbar::sandbox {

void LogBudget::Change(const std::string& session, int64_t bytes) {
  uint64_t& total = sessions_[session].bytes;
  if (bytes < 0) {
    total -= std::min(total, static_cast<uint64_t>(-bytes));
    return;
  }
  total += static_cast<uint64_t>(bytes);
  if (on_growth_) on_growth_();
}

void LogBudget::Set(const std::string& session, uint64_t bytes) {
  auto it = sessions_.find(session);
  if (it != sessions_.end()) it->second.bytes = bytes;
}

std::optional<LogBudget::Plan> LogBudget::Over(uint64_t project_cap, uint64_t total_cap) const {
  std::map<std::string, uint64_t> projects;
  uint64_t total = 0;
  for (const auto& [id, entry] : sessions_) {
    projects[entry.project] += entry.bytes;
    total += entry.bytes;
  }
  auto over = std::ranges::find_if(projects, [&](const auto& p) { return p.second > project_cap; });
  const bool one = over != projects.end();
  if (!one && total <= total_cap) return std::nullopt;
  Plan plan;
  const uint64_t cap = one ? project_cap : total_cap;
  plan.budget = cap - cap / 8;
  plan.running = running_;
  for (const auto& [id, entry] : sessions_)
    if (entry.bytes > 0 && (!one || entry.project == over->first)) plan.sessions.push_back(id);
  return plan;
}

}  // namespace sandbar::sandbox
