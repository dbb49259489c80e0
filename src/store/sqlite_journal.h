// The journal in SQLite. The connection belongs to the caller and outlives it. One thread at a time.
#pragma once

#include "store/journal.h"

namespace sandbar::store {

class Db;

class SqliteJournal : public Journal {
 public:
  explicit SqliteJournal(Db* db) : db_(db) {}

  Result<std::optional<Session>> FindSession(const std::string& id) override;
  Result<std::optional<Session>> FindSessionByMachine(const std::string& machine_id) override;
  Result<Listing<Session>> ListSessions(const ListFilter& filter) override;
  Result<std::vector<Session>> UnfinishedSessions() override;
  Result<std::vector<std::string>> SessionIds(const SandboxKey& key) override;
  Result<> WriteSession(const Session& session) override;
  Result<> ForgetSessions(const SandboxKey& key) override;

  Result<> InsertCommand(const Command& command) override;
  Result<> UpdateCommand(const Command& command) override;
  Result<> DeleteCommand(const std::string& id) override;
  Result<std::optional<Command>> FindCommand(const std::string& session, const std::string& id) override;
  Result<std::vector<Command>> ListCommands(const std::string& session) override;
  Result<std::vector<Command>> UnfinishedCommands(const std::string& session) override;

  Result<> InsertPoolMember(const PoolMember& member) override;
  Result<> DeletePoolMember(const std::string& machine_id) override;
  Result<std::vector<PoolMember>> PoolMembers() override;

  Result<std::optional<Layer>> FindLayer(const std::string& name) override;
  Result<std::vector<Layer>> AllLayers() override;
  Result<> SaveLayer(const Layer& layer) override;
  Result<> DeleteLayer(const std::string& name) override;

  Result<> AddNotice(const Notice& notice) override;
  Result<std::vector<Notice>> Notices(const SandboxKey& key) override;

  Result<> SetNote(const std::string& name, const std::string& value) override;
  Result<std::map<std::string, std::string>> Notes(const std::string& prefix) override;

  Result<> PurgeLog() override;

 protected:
  // The steps of calls that write several rows. The caller has begun a transaction.
  Result<> PutNewSession(const Session& session);
  Result<> PutSession(const Session& session);
  Result<> DropSessions(const SandboxKey& key);
  Result<> ClaimPoolMember(const std::string& machine_id);  // fails when it has no row

 private:
  Db* db_;
};

}  // namespace sandbar::store
