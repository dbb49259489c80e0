// The directory of a one-machine server: the rows of a SQLite file, asked on the store's thread, so that the loop never
// waits for the disk. The rows and the pool outlive it. The pool has one thread, which is what keeps calls in order,
// and every other user of the same connection runs on it too.
//
//   asio::thread_pool db_pool(1);
//   AsyncDirectory directory(store, &db_pool);
//   SB_CO_TRY(auto found, co_await directory.FindSandbox(key));
#pragma once

#include "store/directory.h"
#include "store/sqlite_directory.h"

namespace sandbar::store {

class AsyncDirectory final : public Directory {
 public:
  AsyncDirectory(SqliteDirectory* rows, asio::thread_pool* pool) : rows_(rows), pool_(pool) {}

  Task<std::optional<Sandbox>> FindSandbox(SandboxKey key) override;
  Task<std::optional<Sandbox>> FindSandboxById(std::string id) override;
  Task<std::optional<Sandbox>> FindSandboxBySubdomain(std::string subdomain) override;
  Task<> InsertSandbox(Sandbox sandbox) override;
  Task<Sandbox> EditSandbox(SandboxKey key, SandboxEdit edit) override;  // the edit runs on the pool's thread
  Task<> RemoveSandbox(SandboxKey key) override;
  Task<Listing<Sandbox>> ListSandboxes(ListFilter filter) override;
  Task<uint64_t> CountSandboxes() override;
  Task<std::vector<Sandbox>> SandboxesToCollect(int64_t now) override;
  Task<std::vector<ProjectUsage>> Usage() override;

  Task<std::optional<Snapshot>> FindSnapshot(std::string id) override;
  Task<> InsertSnapshot(Snapshot snapshot) override;
  Task<Snapshot> EditSnapshot(std::string id, SnapshotEdit edit) override;
  Task<Listing<Snapshot>> ListSnapshots(ListFilter filter) override;
  Task<std::vector<Snapshot>> SnapshotChildren(std::string parent) override;
  Task<std::vector<Snapshot>> AllSnapshots() override;

  Task<> InsertDrive(Drive drive) override;
  Task<std::optional<Drive>> FindDrive(std::string team, std::string project, std::string name) override;
  Task<Listing<Drive>> ListDrives(ListFilter filter) override;
  Task<Drive> EditDrive(std::string id, DriveEdit edit) override;
  Task<std::vector<Drive>> AllDrives() override;
  Task<> ForgetDrive(std::string id) override;

  Task<> InsertKey(Key key) override;
  Task<Key> EditKey(std::string id, KeyEdit edit) override;
  Task<std::vector<Key>> AllKeys() override;
  Task<> ForgetKey(std::string id) override;

 private:
  SqliteDirectory* rows_;
  asio::thread_pool* pool_;
};

}  // namespace sandbar::store
