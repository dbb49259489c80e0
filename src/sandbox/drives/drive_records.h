// Drives as rows: which a session may have, who holds them, what of them on disk is still needed. The functions on a
// Store run on its thread, in one piece: nothing comes between a check and what follows it.
//
// A drive has no "attached" flag. A session that is not finished holds what its row lists, from before its machine is
// booted until after it has ended; so whoever finishes the session, also after a crash, frees the drive.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "sandbox/drives/drives.h"
#include "store/store.h"

namespace sandbar::sandbox {

inline constexpr size_t kMaxBlockMounts = 3;  // in a machine that gets them as devices

Result<> CheckDriveName(const std::string& name);
Result<> CheckDriveSize(uint64_t bytes);
// At most 4; absolute, normalised paths that do not lie in one another nor in what the machine itself mounts.
Result<> CheckMounts(const std::map<std::string, store::Mount>& mounts);
Result<store::ListFilter> CheckDriveList(const Scope& scope, const ListQuery& query);

// A state's name on disk.
std::string DriveSnapshotName(const std::string& drive, int64_t state);

// The sessions that hold drives read-write, by drive.
Result<std::map<std::string, store::Session>> DriveHolders(store::Store& store);
// Every drive that the sandbox names exists and is in its region.
Result<> FindMounts(store::Store& store, const store::Sandbox& sandbox);
// Lists in the session's row what its sandbox mounts. kConflict when another session holds one of them, kDriveEmpty
// when there is no state to show yet. The caller inserts the row in the same piece of work.
Result<> AttachDrives(store::Store& store, const store::Sandbox& sandbox, store::Session& session);

// Of the drives and states on disk, those that no row can ask for any more. What no row knows is not among them.
Result<std::vector<std::string>> UnusedDrives(store::Store& store, const std::vector<std::string>& on_disk);

}  // namespace sandbar::sandbox
