// Recovery: before anyone may call, a start of the server compares the rows with the machines that exist, and makes
// them agree.
//
//   machine of the pool ................ destroy: pools are never adopted
//   row "running", machine alive ....... attach, replay, clocks from started_at + timeout
//   row "running", machine gone ........ stopped (its deadline passed) or aborted ("machine lost")
//   row "stopping", "snapshotting" ..... finish the stop, with the snapshot that it was to make
//   row "pending" ...................... the create or resume was never answered: undo it
//   sandbox with a pending deletion .... end a session that runs and keep nothing of it; Deleter::FinishPending deletes
//                                        the sandbox once the API answers
//   machine of a finished row .......... destroy
//   machine without a row, never started  destroy: a create boots it while the record is written
//   another machine without a row ...... pause it and leave it: the database may be the thing that was lost
//
// Single loop; owned by the domain.
#pragma once

#include <optional>
#include <string>

#include "sandbox/core.h"
#include "sandbox/sandboxes/pending_deletion.h"
#include "sandbox/sessions/stopper.h"
#include "sandbox/snapshots/disk_limits.h"

namespace sandbar::sandbox {

class Recovery {
 public:
  Recovery(Core* core, Stopper* stopper, DiskLimits* disk) : core_(core), stopper_(stopper), disk_(disk) {}

  Task<> Run();

 private:
  struct Remains {
    bool present = false, alive = false;     // its machine
    std::optional<PendingDeletion> pending;  // of a sandbox of its name
  };
  Task<> RemovePool(std::vector<store::PoolMember> pooled, std::map<std::string, engine::MachineState>* existing);
  Task<> RecoverSession(store::Session row, Remains remains, Result<>* failure);
  // The operator may have changed the class of an engine: the row says today's.
  Task<store::Session> Relabel(store::Session row, int isolation_class);
  Task<> RollBack(store::Session row, bool present);
  Task<> DestroyMachine(std::string machine_id);
  Task<> DestroyLeftover(std::string machine_id, bool started);

  Core* core_;
  Stopper* stopper_;
  DiskLimits* disk_;
};

}  // namespace sandbar::sandbox
