// The durable state of one server: sandboxes, sessions, commands, pool members, tokens. A small interface so that
// another database can stand behind it; nothing above it sees SQL.
//
// Calls are synchronous and block: the domain makes all of them on one thread of its own (async Offload), never on the
// loop. An instance is used by one thread at a time. A call that returns success has committed: a killed process loses
// nothing. Edits of a sandbox are functions, run inside the transaction, so that two writers never overwrite each
// other:
//
//   auto store = OpenSqlite("/var/lib/sandbar/sandbar.db");
//   (*store)->EditSandbox(key, [](Sandbox& s) -> Result<> { s.timeout_ms = 60000; return {}; });
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "store/records.h"

namespace sandbar::store {

// A sandbox's identity: names are unique within a project of a team.
struct SandboxKey {
  std::string team, project, name;
  bool operator==(const SandboxKey&) const = default;
};
inline SandboxKey KeyOf(const Sandbox& s) {
  return {s.team, s.project, s.name};
}
inline SandboxKey KeyOf(const Session& s) {
  return {s.team, s.project, s.sandbox};
}

enum class SortBy { kCreatedAt, kName, kStatusUpdatedAt, kUpdatedAt };  // the last: drives only

struct ListFilter {
  std::string team, project;  // empty: any
  int limit = 20;
  std::string cursor;  // what `next` of the page before said
  SortBy sort_by = SortBy::kCreatedAt;
  bool ascending = false;
  std::string name_prefix;
  std::optional<std::pair<std::string, std::string>> tag;
  std::string sandbox;                  // sessions only: of this name
  std::optional<int64_t> since, until;  // exclusive bounds on created_at
};

template <class T>
struct Listing {
  std::vector<T> items;
  std::string next;  // empty: no more
};

using SandboxEdit = std::function<Result<>(Sandbox&)>;
using SnapshotEdit = std::function<Result<>(Snapshot&)>;
using DriveEdit = std::function<Result<>(Drive&)>;

class Store {
 public:
  virtual ~Store() = default;

  // Both rows or none. kConflict when the name is taken. A non-empty `claimed` pool member loses its pool row in the
  // same transaction: from then on the machine belongs to the session.
  virtual Result<> CreateSandbox(const Sandbox& sandbox, const Session& session, const std::string& claimed) = 0;
  virtual Result<std::optional<Sandbox>> FindSandbox(const SandboxKey& key) = 0;
  virtual Result<std::optional<Sandbox>> FindSandboxBySubdomain(const std::string& subdomain) = 0;
  // kNotFound when it is gone. An error from `edit` rolls back and is returned.
  virtual Result<Sandbox> EditSandbox(const SandboxKey& key, const SandboxEdit& edit) = 0;
  // Takes its sessions, commands and notices with it. Not an error when it is gone already.
  virtual Result<> DeleteSandbox(const SandboxKey& key) = 0;
  virtual Result<Listing<Sandbox>> ListSandboxes(const ListFilter& filter) = 0;
  virtual Result<uint64_t> CountSandboxes() = 0;
  // Ended ones whose collect_after_ms is over, a bounded number, those that ended first.
  virtual Result<std::vector<Sandbox>> SandboxesToCollect(int64_t now) = 0;
  virtual Result<std::vector<ProjectUsage>> Usage() = 0;

  // A new session of an existing sandbox, or a new state of a known one, with the edit of its sandbox.
  virtual Result<Sandbox> SaveSession(const Session& session, const SandboxEdit& edit) = 0;
  // The same, with the snapshot that the session left.
  virtual Result<Sandbox> SaveStopped(const Session& session, const Snapshot& snapshot, const SandboxEdit& edit) = 0;
  virtual Result<std::optional<Session>> FindSession(const std::string& id) = 0;
  virtual Result<std::optional<Session>> FindSessionByMachine(const std::string& machine_id) = 0;
  virtual Result<Listing<Session>> ListSessions(const ListFilter& filter) = 0;
  // Neither stopped, failed nor aborted: what recovery has to look at.
  virtual Result<std::vector<Session>> UnfinishedSessions() = 0;
  virtual Result<std::vector<std::string>> SessionIds(const SandboxKey& key) = 0;

  virtual Result<std::optional<Snapshot>> FindSnapshot(const std::string& id) = 0;
  virtual Result<Listing<Snapshot>> ListSnapshots(const ListFilter& filter) = 0;
  // kNotFound when it is not there. An error from `edit` rolls back and is returned.
  virtual Result<Snapshot> EditSnapshot(const std::string& id, const SnapshotEdit& edit) = 0;
  // Those of one parent, oldest first; tombstones included.
  virtual Result<std::vector<Snapshot>> SnapshotChildren(const std::string& parent) = 0;
  virtual Result<std::vector<Snapshot>> AllSnapshots() = 0;

  // kConflict when the name is taken. Deleted ones have no name any more and are in no list but AllDrives.
  virtual Result<> InsertDrive(const Drive& drive) = 0;
  virtual Result<std::optional<Drive>> FindDrive(const std::string& team, const std::string& project,
                                                 const std::string& name) = 0;
  virtual Result<Listing<Drive>> ListDrives(const ListFilter& filter) = 0;
  // kNotFound when it is not there. An error from `edit` rolls back and is returned.
  virtual Result<Drive> EditDrive(const std::string& id, const DriveEdit& edit) = 0;
  virtual Result<std::vector<Drive>> AllDrives() = 0;
  // The row itself, for good.
  virtual Result<> ForgetDrive(const std::string& id) = 0;

  virtual Result<std::optional<Layer>> FindLayer(const std::string& name) = 0;
  virtual Result<std::vector<Layer>> AllLayers() = 0;
  virtual Result<> SaveLayer(const Layer& layer) = 0;
  virtual Result<> DeleteLayer(const std::string& name) = 0;

  // Of one sandbox, or of the project when `sandbox` is empty; newest first, a bounded number.
  virtual Result<> AddNotice(const Notice& notice) = 0;
  virtual Result<std::vector<Notice>> Notices(const SandboxKey& key) = 0;

  // Small facts about the server itself. An empty value removes one.
  virtual Result<> SetNote(const std::string& name, const std::string& value) = 0;
  virtual Result<std::map<std::string, std::string>> Notes(const std::string& prefix) = 0;

  virtual Result<> InsertCommand(const Command& command) = 0;
  virtual Result<> UpdateCommand(const Command& command) = 0;  // the outcome only
  virtual Result<> DeleteCommand(const std::string& id) = 0;
  virtual Result<std::optional<Command>> FindCommand(const std::string& session, const std::string& id) = 0;
  virtual Result<std::vector<Command>> ListCommands(const std::string& session) = 0;  // newest first
  virtual Result<std::vector<Command>> UnfinishedCommands(const std::string& session) = 0;

  virtual Result<> InsertPoolMember(const PoolMember& member) = 0;
  virtual Result<> DeletePoolMember(const std::string& machine_id) = 0;
  virtual Result<std::vector<PoolMember>> PoolMembers() = 0;

  // Until then deleted and overwritten values are still in the write-ahead log beside the database.
  virtual Result<> PurgeLog() = 0;

  virtual Result<> InsertToken(const Token& token) = 0;
  virtual Result<std::vector<Token>> Tokens() = 0;
};

// Opens or creates the database file and brings its schema up to date. Fails with a message for the operator when the
// file is damaged or was written by a newer version.
Result<std::unique_ptr<Store>> OpenSqlite(const std::string& path);

}  // namespace sandbar::store
