// A session's end and its drives: what it wrote becomes the state that readers see from then on.
#include <algorithm>

#include "base/ids.h"
#include "base/log.h"
#include "sandbox/drives/drive_records.h"
#include "sandbox/owner.h"
#include "sandbox/sessions/session.h"

namespace sandbar::sandbox {

bool Session::HoldsDrive() const {
  return std::ranges::any_of(row_.mounts, &store::SessionMount::writable);
}

Task<> Session::SnapshotDrives() {
  // The row is not finished before all are done: whoever takes over after a crash does this again.
  for (const store::SessionMount& mount : row_.mounts) {
    if (!mount.writable) continue;
    std::string state = DriveSnapshotName(mount.drive, mount.state);
    std::string owner = OwnerOf(row_);
    auto frozen = co_await core_->deps.engine->SnapshotDrive(mount.drive, std::move(state), std::move(owner));
    if (!frozen && frozen.error().code == Code::kNotFound) {
      log::Error("session {}: drive {} is gone from the disk", row_.id, mount.drive);
      continue;
    }
    if (!frozen) co_return frozen;
    auto note = [mount](store::Store& store) -> Result<> {
      auto edit = [&mount](store::Drive& drive) -> Result<> {
        drive.state = std::max(drive.state, mount.state);
        drive.updated_at = NowMs();
        return {};
      };
      SB_TRYV(store.EditDrive(mount.drive, edit));
      return {};
    };
    SB_CO_TRYV(co_await core_->Db(std::move(note)));
  }
  co_return Result<>{};
}

}  // namespace sandbar::sandbox
