// Deletes sandboxes with their sessions and logs, at a caller's request or because their time is over. A deletion of a
// sandbox that runs is on record first (pending_deletion.h), so that the next start of the server finishes it. Single
// loop; owned by the domain.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sandbox/core.h"
#include "sandbox/scope.h"
#include "sandbox/sessions/stopper.h"
#include "sandbox/snapshots/deleted_traces.h"

namespace sandbar::sandbox {

class Deleter {
 public:
  Deleter(Core* core, ActiveSessions* active, Stopper* stopper, DeletedTraces* traces)
      : core_(core), active_(active), stopper_(stopper), traces_(traces) {}

  // Sandboxes::Delete.
  Task<store::Sandbox> Delete(Scope scope, std::string name, bool orphan_snapshots);
  // At start: finishes the deletions that an earlier server began.
  Task<> FinishPending();
  // Chores: sandboxes with kDisposableTag, and sandboxes that nobody named or used again.
  Task<> RemoveDisposable();
  Task<> RemoveUnclaimed();

 private:
  struct Found {
    store::Sandbox sandbox;
    bool pending = false;  // its deletion is on record, because it has something to stop
  };
  // The sessions of a sandbox whose record is gone; no value as long as the record is there.
  using Removed = std::shared_ptr<std::optional<std::vector<std::string>>>;

  Task<Found> FindForDeletion(Scope scope, std::string name, bool orphan_snapshots);
  // Stops the machine and discards its files. Removes the record too, unless another stop was under way.
  Task<store::Sandbox> StopForDeletion(store::Sandbox sandbox, bool orphan_snapshots, Removed removed);
  // Removes the record and the logs, if `meant` agrees: meanwhile there may be another sandbox of that name.
  Task<> RemoveRecord(store::SandboxKey key, bool orphan_snapshots, std::function<bool(const store::Sandbox&)> meant);
  Task<> RemoveLogs(std::string sandbox, std::vector<std::string> sessions);

  Core* core_;
  ActiveSessions* active_;
  Stopper* stopper_;
  DeletedTraces* traces_;
};

}  // namespace sandbar::sandbox
