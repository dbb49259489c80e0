// Starts the machine of a session: boots it, or takes one of the pool over, and hands it to the session. Undoes a start
// that failed. Single loop; owned by the domain.
#pragma once

#include <memory>
#include <optional>

#include "base/step_times.h"
#include "sandbox/core.h"
#include "sandbox/sandboxes/boot_source.h"
#include "sandbox/sandboxes/sandbox_view.h"
#include "sandbox/sessions/active_sessions.h"
#include "sandbox/sessions/connected_machine.h"
#include "sandbox/snapshots/converter.h"
#include "sandbox/snapshots/disk_limits.h"

namespace sandbar::sandbox {

// The engine's part of a boot. It may begin before the record is written: a machine that was never started has nothing
// in it, and the next start of the server destroys it.
using Booting = std::shared_ptr<SharedResult<std::unique_ptr<engine::Machine>>>;

// What the new session gets besides its own boot. All may be absent.
struct Launch {
  std::unique_ptr<ConnectedMachine> pooled;
  Booting booting;
  std::optional<SourceSpec> source;
  std::optional<RestoredMemory> restored;
  StepTimes* steps = nullptr;  // outlives the start; null: nobody wants to know
};

class Launcher {
 public:
  Launcher(Core* core, ActiveSessions* active, Converter* converter, DiskLimits* disk)
      : core_(core), active_(active), converter_(converter), disk_(disk) {}

  // The row of a new session: picks the engine. kUnsupported when none meets the demand.
  Result<store::Session> MakeSession(const store::Sandbox& sandbox, const BootSource& source) const;
  Booting BeginBoot(const store::Session& row);
  Task<> DropBooted(Booting booting);
  // Returns when the session runs. After an error the caller undoes the start.
  Task<SandboxView> Start(std::shared_ptr<Session> session, store::Sandbox sandbox, Launch launch);
  // Destroys the machine and the rows of a session that never ran. A machine that cannot be destroyed keeps its row.
  Task<> Undo(std::shared_ptr<Session> session, Error why);

 private:
  engine::BootRequest RequestOf(const store::Session& row) const;
  // Snapshot and drives in the format that the session's engine needs.
  Task<> FitFormats(store::Session row, engine::Rootfs* rootfs);
  Task<std::unique_ptr<ConnectedMachine>> Claim(std::unique_ptr<ConnectedMachine> pooled, store::Session row);
  Task<std::unique_ptr<ConnectedMachine>> Boot(std::shared_ptr<Session> session, Booting booting,
                                               std::string memory_snapshot, StepTimes* steps);

  Core* core_;
  ActiveSessions* active_;
  Converter* converter_;
  DiskLimits* disk_;
};

}  // namespace sandbar::sandbox
