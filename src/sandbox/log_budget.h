// How much command output lies on the host's disk, by project and in all. CommandLog says what it writes and removes,
// running commands included; the service trims when a cap is passed (session_logs.h). Single loop.
//
//   core.logs.Own(session, project);         // before its first command
//   core.logs.Begin(session, command);
//   core.logs.Change(session, +segment);
//   if (auto plan = core.logs.Over(project_cap, total_cap)) …
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace sandbar::sandbox {

class LogBudget {
 public:
  // What has to be trimmed, and to how much.
  struct Plan {
    std::vector<std::string> sessions;
    uint64_t budget = 0;
    std::set<std::string> running;  // commands whose output stays
  };

  void Own(const std::string& session, const std::string& project) { sessions_[session].project = project; }
  void Begin(const std::string& command) { running_.insert(command); }
  void End(const std::string& command) { running_.erase(command); }
  void Change(const std::string& session, int64_t bytes);
  // What was found on disk.
  void Set(const std::string& session, uint64_t bytes);
  void Forget(const std::string& session) { sessions_.erase(session); }
  // The first project that is over its cap, or all of them. Trimmed to a little less, so that it is not for nothing.
  std::optional<Plan> Over(uint64_t project_cap, uint64_t total_cap) const;
  // Called after every change that adds something.
  void OnGrowth(std::function<void()> f) { on_growth_ = std::move(f); }

 private:
  struct Entry {
    std::string project;
    uint64_t bytes = 0;
  };
  std::map<std::string, Entry> sessions_;
  std::set<std::string> running_;
  std::function<void()> on_growth_;
};

}  // namespace sandbar::sandbox
