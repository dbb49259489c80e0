// The one door to records: a caller reaches a row only with a Scope, and a row of another project answers as unknown.
// No other file compares a scope with a row. (Drives have no id of their own on the wire: they are found by team,
// project and name, so a foreign one cannot be named.) Rows of active sessions come from memory, because they are newer
// than the store. Single loop.
//
//   SB_CO_TRY(auto sandbox, co_await records->FindSandbox(scope, name));
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "async/task.h"
#include "sandbox/core.h"
#include "sandbox/scope.h"
#include "sandbox/sessions/active_sessions.h"
#include "store/records.h"

namespace sandbar::sandbox {

class Records {
 public:
  Records(Core* core, ActiveSessions* active) : core_(core), active_(active) {}

  // kBadRequest when the scope names no project.
  Task<store::Sandbox> FindSandbox(Scope scope, std::string name);
  Task<store::Session> FindSession(Scope scope, std::string id);
  Task<store::Snapshot> FindSnapshot(Scope scope, std::string id);
  // Nothing when the snapshot is unknown or foreign.
  Task<std::optional<store::Snapshot>> FindSnapshotIfAny(Scope scope, std::string id);
  // Null when the session is not active, or foreign.
  std::shared_ptr<Session> ActiveIfAny(const Scope& scope, const std::string& session) const;
  // For calls that need the machine: waits for a session that starts. kStopped and the like when it does not run.
  Task<std::shared_ptr<Session>> FindActive(Scope scope, std::string session);
  // The sandbox of a session that was found with a scope.
  Task<store::Sandbox> SandboxOf(store::Session session);

  Task<Page<store::Sandbox>> ListSandboxes(Scope scope, ListQuery query);
  Task<Page<store::Session>> ListSessions(Scope scope, ListQuery query);
  Task<Page<store::Snapshot>> ListSnapshots(Scope scope, ListQuery query);
  Task<std::vector<store::Notice>> ListNotices(Scope scope, std::string sandbox);
  // Leaves only the projects that the scope may see.
  static void KeepVisible(const Scope& scope, std::vector<store::ProjectUsage>& report);
  // The scope may manage the key. A key of every project needs a scope of every project.
  static bool Includes(const Scope& scope, const store::Key& key);

 private:
  Core* core_;
  ActiveSessions* active_;
};

}  // namespace sandbar::sandbox
