// Drives as rows: the drives that a session mounts, the session that holds a drive, and the directories on disk that
// are still needed. A drive snapshot is the state of a drive after a session that wrote to it; sessions that mount the
// drive read-only see the newest one. The functions on a Store run on its thread without interruption.
//
// A drive has no "attached" flag. An unfinished session holds the drives that its row lists, from before its machine is
// booted until after it has ended. So the end of the session frees the drive, also after a crash.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "sandbox/drives/drives.h"
#include "store/store.h"

namespace sandbar::sandbox {

inline constexpr size_t kMaxBlockMounts = 3;  // in a machine that gets drives as block devices

Result<> CheckDriveName(const std::string& name);
Result<> CheckDriveSize(uint64_t bytes);
// At most 4 mounts, at absolute, normalised paths, none within another or within a mount of the machine itself.
Result<> CheckMounts(const std::map<std::string, store::Mount>& mounts);
Result<store::ListFilter> CheckDriveList(const Scope& scope, const ListQuery& query);

// The name of a drive snapshot on disk. The store calls its number "state".
std::string DriveSnapshotName(const std::string& drive, int64_t number);

// The sessions that hold drives read-write, by drive.
Result<std::map<std::string, store::Session>> DriveHolders(store::Journal& journal);
// Every drive that the sandbox names exists and is in its region.
Result<> FindMounts(store::Store& store, const store::Sandbox& sandbox);
// Lists the sandbox's mounts in the session's row. kConflict when another session holds one of the drives, kDriveEmpty
// when a drive has no snapshot yet. The caller inserts the row in the same call of the store.
Result<> AttachDrives(store::Store& store, const store::Sandbox& sandbox, store::Session& session);

// The drives and drive snapshots on disk that no row needs any more. Directories that no row knows are not among them.
Result<std::vector<std::string>> UnusedDrives(store::Store& store, const std::vector<std::string>& on_disk);

}  // namespace sandbar::sandbox
