// The directory: the truth that all machines share. Records of sandboxes (names, owners, settings, heads), snapshots,
// drives, keys and usage. On one machine it is the SQLite file that the journal is in too (async_directory.h); for
// several machines another database can stand behind it. Nothing above it sees SQL.
//
// Calls return a Task, because another database answers over the network. They are made on the loop. Calls that are
// made in order take effect in order. A call that returns success has committed.
//
//   SB_CO_TRY(auto found, co_await core.directory->FindSandbox(key));
//
// Edits of a sandbox are compare-and-set: the edit is applied to the row as it was read and written only where the row
// still has the version that was read. Otherwise somebody else wrote in between: the row is read again and the edit
// runs again, kMaxEditAttempts times at most, then the call fails with kConflict and nothing of it is written. Each
// write makes the version one larger.
//
// The writes that change the journal and the directory together are in store.h.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "async/task.h"
#include "store/keys.h"

namespace sandbar::store {

inline constexpr int kMaxEditAttempts = 8;

class Directory {
 public:
  Directory() = default;
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;
  virtual ~Directory() = default;

  virtual Task<std::optional<Sandbox>> FindSandbox(SandboxKey key) = 0;
  virtual Task<std::optional<Sandbox>> FindSandboxById(std::string id) = 0;
  virtual Task<std::optional<Sandbox>> FindSandboxBySubdomain(std::string subdomain) = 0;
  // kConflict when the name is taken.
  virtual Task<> InsertSandbox(Sandbox sandbox) = 0;
  // kNotFound when it is gone. An error from `edit` is returned, and nothing is written. The name, the id and the
  // version are not the edit's to change.
  virtual Task<Sandbox> EditSandbox(SandboxKey key, SandboxEdit edit) = 0;
  // Not an error when it is gone already.
  virtual Task<> RemoveSandbox(SandboxKey key) = 0;
  virtual Task<Listing<Sandbox>> ListSandboxes(ListFilter filter) = 0;
  virtual Task<uint64_t> CountSandboxes() = 0;
  // Ended ones whose collect_after_ms is over, a bounded number, those that ended first.
  virtual Task<std::vector<Sandbox>> SandboxesToCollect(int64_t now) = 0;
  // Sums per project, deleted sandboxes included (store.h says who adds to them).
  virtual Task<std::vector<ProjectUsage>> Usage() = 0;

  virtual Task<std::optional<Snapshot>> FindSnapshot(std::string id) = 0;
  // kConflict when the id is taken.
  virtual Task<> InsertSnapshot(Snapshot snapshot) = 0;
  // kNotFound when it is not there. An error from `edit` is returned, and nothing is written.
  virtual Task<Snapshot> EditSnapshot(std::string id, SnapshotEdit edit) = 0;
  virtual Task<Listing<Snapshot>> ListSnapshots(ListFilter filter) = 0;
  // Those of one parent, oldest first; tombstones included.
  virtual Task<std::vector<Snapshot>> SnapshotChildren(std::string parent) = 0;
  virtual Task<std::vector<Snapshot>> AllSnapshots() = 0;

  // kConflict when the name is taken. Deleted ones have no name any more and are in no list but AllDrives.
  virtual Task<> InsertDrive(Drive drive) = 0;
  virtual Task<std::optional<Drive>> FindDrive(std::string team, std::string project, std::string name) = 0;
  virtual Task<Listing<Drive>> ListDrives(ListFilter filter) = 0;
  // kNotFound when it is not there. An error from `edit` is returned, and nothing is written.
  virtual Task<Drive> EditDrive(std::string id, DriveEdit edit) = 0;
  virtual Task<std::vector<Drive>> AllDrives() = 0;
  // The row itself, for good.
  virtual Task<> ForgetDrive(std::string id) = 0;

  // kConflict when the id or the hash is taken.
  virtual Task<> InsertKey(Key key) = 0;
  // kNotFound when it is not there. An error from `edit` is returned, and nothing is written.
  virtual Task<Key> EditKey(std::string id, KeyEdit edit) = 0;
  virtual Task<std::vector<Key>> AllKeys() = 0;
  // The row itself, for good. Not an error when it is not there.
  virtual Task<> ForgetKey(std::string id) = 0;
};

}  // namespace sandbar::store
