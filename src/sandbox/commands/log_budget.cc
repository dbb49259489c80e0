#include "sandbox/commands/log_budget.h"

#include <algorithm>

namespace sandbar::sandbox {

void LogBudget::Put(Entry& entry, uint64_t bytes) {
  uint64_t& sum = projects_[entry.project];
  sum = sum - entry.bytes + bytes;
  total_ = total_ - entry.bytes + bytes;
  entry.bytes = bytes;
  if (sum == 0) projects_.erase(entry.project);
}

void LogBudget::Own(const std::string& session, const std::string& project) {
  Entry& entry = sessions_[session];
  const uint64_t bytes = entry.bytes;
  Put(entry, 0);
  entry.project = project;
  Put(entry, bytes);
}

void LogBudget::End(const std::string& command) {
  running_.erase(command);
  // Nobody may grow any more who would ask for the trim.
  const auto over = [this](const auto& project) { return project.second > project_cap_; };
  if (on_over_ && (total_ > total_cap_ || std::ranges::any_of(projects_, over))) on_over_();
}

void LogBudget::Change(const std::string& session, int64_t bytes) {
  Entry& entry = sessions_[session];
  if (bytes < 0) return Put(entry, entry.bytes - std::min(entry.bytes, static_cast<uint64_t>(-bytes)));
  Put(entry, entry.bytes + static_cast<uint64_t>(bytes));
  auto sum = projects_.find(entry.project);
  const bool over = total_ > total_cap_ || (sum != projects_.end() && sum->second > project_cap_);
  if (over && on_over_) on_over_();
}

void LogBudget::Set(const std::string& session, uint64_t bytes) {
  if (auto it = sessions_.find(session); it != sessions_.end()) Put(it->second, bytes);
}

void LogBudget::Forget(const std::string& session) {
  Set(session, 0);
  sessions_.erase(session);
}

LogBudget::Plan LogBudget::PlanFor(const std::string* project, uint64_t cap) const {
  Plan plan;
  plan.budget = cap - cap / 8;
  plan.running = running_;
  for (const auto& [id, entry] : sessions_)
    if (entry.bytes > 0 && (project == nullptr || entry.project == *project)) plan.sessions.push_back(id);
  return plan;
}

std::vector<LogBudget::Plan> LogBudget::OverCap() const {
  std::vector<Plan> plans;
  for (const auto& [project, bytes] : projects_)
    if (bytes > project_cap_) plans.push_back(PlanFor(&project, project_cap_));
  return plans;
}

std::vector<LogBudget::Plan> LogBudget::OverTotal() const {
  if (total_ <= total_cap_) return {};
  return {PlanFor(nullptr, total_cap_)};
}

}  // namespace sandbar::sandbox
