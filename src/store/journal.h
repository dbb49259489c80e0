// The journal: the truth about what runs on this machine. Sessions, their commands, machines booted ahead, layers on
// this machine's disk, notices, and notes (pending deletions too). Each machine has a journal of its own, in a file
// on its own disk, also when several machines share a directory (directory.h).
//
// Calls are synchronous and block: the domain makes all of them on the store's thread, never on the loop. An instance
// is used by one thread at a time. A call that returns success has committed: a killed process loses nothing.
//
//   core.Journal([](store::Journal& journal) { return journal.UnfinishedSessions(); });
//
// A session's row names its sandbox's record in the directory. The writes that change both are in store.h. In the one
// file of a one-machine server the session's row references the record, and goes when the record is removed.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "store/keys.h"

namespace sandbar::store {

class Journal {
 public:
  Journal() = default;
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;
  virtual ~Journal() = default;

  virtual Result<std::optional<Session>> FindSession(const std::string& id) = 0;
  virtual Result<std::optional<Session>> FindSessionByMachine(const std::string& machine_id) = 0;
  virtual Result<Listing<Session>> ListSessions(const ListFilter& filter) = 0;
  // Neither stopped, failed nor aborted: what recovery has to look at.
  virtual Result<std::vector<Session>> UnfinishedSessions() = 0;
  virtual Result<std::vector<std::string>> SessionIds(const SandboxKey& key) = 0;
  // A new session, or a new state of a known one. Its sandbox has a record already.
  virtual Result<> WriteSession(const Session& session) = 0;
  // The sessions, commands and notices of a sandbox. Not an error when there are none.
  virtual Result<> ForgetSessions(const SandboxKey& key) = 0;

  virtual Result<> InsertCommand(const Command& command) = 0;
  virtual Result<> UpdateCommand(const Command& command) = 0;  // the outcome only
  virtual Result<> DeleteCommand(const std::string& id) = 0;
  virtual Result<std::optional<Command>> FindCommand(const std::string& session, const std::string& id) = 0;
  virtual Result<std::vector<Command>> ListCommands(const std::string& session) = 0;  // newest first
  virtual Result<std::vector<Command>> UnfinishedCommands(const std::string& session) = 0;

  virtual Result<> InsertPoolMember(const PoolMember& member) = 0;
  virtual Result<> DeletePoolMember(const std::string& machine_id) = 0;
  virtual Result<std::vector<PoolMember>> PoolMembers() = 0;

  virtual Result<std::optional<Layer>> FindLayer(const std::string& name) = 0;
  virtual Result<std::vector<Layer>> AllLayers() = 0;
  virtual Result<> SaveLayer(const Layer& layer) = 0;
  virtual Result<> DeleteLayer(const std::string& name) = 0;

  // Of one sandbox, or of the project when `key.name` is empty; newest first, a bounded number.
  virtual Result<> AddNotice(const Notice& notice) = 0;
  virtual Result<std::vector<Notice>> Notices(const SandboxKey& key) = 0;

  // Small facts about the server itself. An empty value removes one.
  virtual Result<> SetNote(const std::string& name, const std::string& value) = 0;
  virtual Result<std::map<std::string, std::string>> Notes(const std::string& prefix) = 0;

  // Until then deleted and overwritten values are still in the write-ahead log beside the database.
  virtual Result<> PurgeLog() = 0;
};

}  // namespace sandbar::store
