// The directory's rows in SQLite: the calls of directory.h, synchronous, with the same meaning. The connection belongs
// to the caller and outlives it. One thread at a time. Everybody but the pieces of work in sandbox/ that also write the
// journal goes through AsyncDirectory.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "store/keys.h"

namespace sandbar::store {

class Db;

class SqliteDirectory {
 public:
  explicit SqliteDirectory(Db* db) : db_(db) {}
  SqliteDirectory(const SqliteDirectory&) = delete;
  SqliteDirectory& operator=(const SqliteDirectory&) = delete;
  virtual ~SqliteDirectory() = default;

  Result<std::optional<Sandbox>> FindSandbox(const SandboxKey& key);
  Result<std::optional<Sandbox>> FindSandboxById(const std::string& id);
  Result<std::optional<Sandbox>> FindSandboxBySubdomain(const std::string& subdomain);
  Result<> InsertSandbox(const Sandbox& sandbox);
  // Compare-and-set, see directory.h. `edit` runs outside of any transaction and may make calls of its own.
  Result<Sandbox> EditSandbox(const SandboxKey& key, const SandboxEdit& edit);
  Result<> RemoveSandbox(const SandboxKey& key);
  Result<Listing<Sandbox>> ListSandboxes(const ListFilter& filter);
  Result<uint64_t> CountSandboxes();
  Result<std::vector<Sandbox>> SandboxesToCollect(int64_t now);
  Result<std::vector<ProjectUsage>> Usage();

  Result<std::optional<Snapshot>> FindSnapshot(const std::string& id);
  Result<> InsertSnapshot(const Snapshot& snapshot);
  Result<Snapshot> EditSnapshot(const std::string& id, const SnapshotEdit& edit);
  Result<Listing<Snapshot>> ListSnapshots(const ListFilter& filter);
  Result<std::vector<Snapshot>> SnapshotChildren(const std::string& parent);
  Result<std::vector<Snapshot>> AllSnapshots();

  Result<> InsertDrive(const Drive& drive);
  Result<std::optional<Drive>> FindDrive(const std::string& team, const std::string& project, const std::string& name);
  Result<Listing<Drive>> ListDrives(const ListFilter& filter);
  Result<Drive> EditDrive(const std::string& id, const DriveEdit& edit);
  Result<std::vector<Drive>> AllDrives();
  Result<> ForgetDrive(const std::string& id);

  Result<> InsertKey(const Key& key);
  Result<Key> EditKey(const std::string& id, const KeyEdit& edit);
  Result<std::vector<Key>> AllKeys();
  Result<> ForgetKey(const std::string& id);

 protected:
  // The steps of calls that write several rows. The caller has begun a transaction.
  Result<> PutNewSandbox(const Sandbox& sandbox);
  Result<> DropSandbox(const SandboxKey& key);
  // Reads, edits and writes in the caller's transaction, where nobody can come in between.
  Result<Sandbox> EditInTransaction(const SandboxKey& key, const SandboxEdit& edit);

 private:
  // Writes `edited` over the row that still has the id and version of `read`. False: it has not.
  Result<bool> WriteIfUnchanged(const Sandbox& read, Sandbox& edited);
  Result<> InsertSubdomains(const Sandbox& sandbox);
  Result<> DeleteSubdomains(const std::string& sandbox_id);

  Db* db_;
};

}  // namespace sandbar::store
