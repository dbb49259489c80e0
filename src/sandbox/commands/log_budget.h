// Counts the command output on the host's disk, by project and in all. CommandLog reports what it writes and removes,
// for running commands too; LogKeeper trims when a cap is passed. Single loop.
//
//   core.logs.Own(session, project);         // before its first command
//   core.logs.Begin(command);
//   core.logs.Change(session, +segment);
//   for (const auto& plan : core.logs.OverCap()) …
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace sandbar::sandbox {

class LogBudget {
 public:
  LogBudget(uint64_t project_cap, uint64_t total_cap) : project_cap_(project_cap), total_cap_(total_cap) {}

  void Own(const std::string& session, const std::string& project);
  // While a command runs, its output stays.
  void Begin(const std::string& command) { running_.insert(command); }
  void End(const std::string& command);
  void Change(const std::string& session, int64_t bytes);
  // The bytes that were found on disk. Ignored for a session without an owner.
  void Set(const std::string& session, uint64_t bytes);
  void Forget(const std::string& session);

  // The sessions to trim, and the budget: a little less than the cap, so that the next trim is not due at once.
  struct Plan {
    std::vector<std::string> sessions;
    uint64_t budget = 0;
    std::set<std::string> running;
  };
  // Of projects that are over theirs.
  std::vector<Plan> OverCap() const;
  // Of all together, when that is over the server's.
  std::vector<Plan> OverTotal() const;
  // Called when something is over a cap and has grown, or may be dropped now.
  void OnOver(std::function<void()> f) { on_over_ = std::move(f); }

 private:
  struct Entry {
    std::string project;
    uint64_t bytes = 0;
  };
  void Put(Entry& entry, uint64_t bytes);
  Plan PlanFor(const std::string* project, uint64_t cap) const;

  uint64_t project_cap_, total_cap_;
  std::map<std::string, Entry> sessions_;
  std::map<std::string, uint64_t> projects_;  // sums of the above
  uint64_t total_ = 0;
  std::set<std::string> running_;
  std::function<void()> on_over_;
};

}  // namespace sandbar::sandbox
