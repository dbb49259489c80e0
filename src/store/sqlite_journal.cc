#include "store/sqlite_journal.h"

#include "store/json_text.h"
#include "store/rows.h"
#include "store/sqlite_db.h"
#include "store/sqlite_listing.h"
#include "store/sqlite_read.h"

namespace sandbar::store {
namespace {

const std::string kLayerColumns = "name, digest, bytes, files, durable_at, verified_at, damage";

Result<Layer> ReadLayer(const Query& row, int c) {
  Layer l;
  l.name = row.Text(c);
  l.digest = row.Text(c + 1);
  l.bytes = static_cast<uint64_t>(row.Int(c + 2));
  l.files = static_cast<uint64_t>(row.Int(c + 3));
  l.durable_at = row.Int(c + 4);
  l.verified_at = row.Int(c + 5);
  l.damage = row.Text(c + 6);
  return l;
}

}  // namespace

Result<std::optional<Session>> SqliteJournal::FindSession(const std::string& id) {
  SB_TRY(auto q, db_->Prepare("SELECT " + kSessionColumns + " FROM sessions WHERE id = ?"));
  q.Bind(id);
  return ReadOne<Session>(q, ReadSession);
}

Result<std::optional<Session>> SqliteJournal::FindSessionByMachine(const std::string& machine_id) {
  SB_TRY(auto q, db_->Prepare("SELECT " + kSessionColumns + " FROM sessions WHERE machine_id = ?"));
  q.Bind(machine_id);
  return ReadOne<Session>(q, ReadSession);
}

Result<Listing<Session>> SqliteJournal::ListSessions(const ListFilter& filter) {
  ListSql sql{.listing = "sessions/createdAt", .column = "created_at"};
  if (!filter.sandbox.empty()) sql.where += " AND sandbox = ?";
  auto bind = [&filter](Query& q) {
    if (!filter.sandbox.empty()) q.Bind(filter.sandbox);
  };
  return ListRows<Session>(*db_, filter, std::move(sql), "sessions", kSessionColumns, bind, ReadSession);
}

Result<std::vector<Session>> SqliteJournal::UnfinishedSessions() {
  SB_TRY(auto q, db_->Prepare("SELECT " + kSessionColumns +
                              " FROM sessions WHERE status NOT IN ('stopped', 'failed', 'aborted') ORDER BY row"));
  return ReadAll<Session>(q, ReadSession);
}

Result<std::vector<std::string>> SqliteJournal::SessionIds(const SandboxKey& key) {
  SB_TRY(auto q, db_->Prepare("SELECT id FROM sessions WHERE team = ? AND project = ? AND sandbox = ?"));
  BindKey(q, key);
  return ReadAll<std::string>(q, [](const Query& row, int column) -> Result<std::string> { return row.Text(column); });
}

Result<> SqliteJournal::PutNewSession(const Session& session) {
  return InsertRow(*db_, "sessions", kSessionColumns, session);
}

Result<> SqliteJournal::PutSession(const Session& session) {
  {
    SB_TRY(auto q, db_->Prepare("UPDATE sessions SET " + Assignments(kSessionColumns) + " WHERE id = ?"));
    Bind(q, session);
    SB_TRYV(q.Bind(session.id).Run());
  }
  if (db_->changes() > 0) return {};
  return PutNewSession(session);
}

Result<> SqliteJournal::WriteSession(const Session& session) {
  SB_TRY(auto tx, Transaction::Begin(db_));
  SB_TRYV(PutSession(session));
  return tx.Commit();
}

// Commands go with their sessions: the schema says so.
Result<> SqliteJournal::DropSessions(const SandboxKey& key) {
  for (const char* table : {"sessions", "notices"}) {
    SB_TRY(auto q,
           db_->Prepare("DELETE FROM " + std::string(table) + " WHERE team = ? AND project = ? AND sandbox = ?"));
    SB_TRYV(BindKey(q, key).Run());
  }
  return {};
}

Result<> SqliteJournal::ForgetSessions(const SandboxKey& key) {
  SB_TRY(auto tx, Transaction::Begin(db_));
  SB_TRYV(DropSessions(key));
  return tx.Commit();
}

Result<> SqliteJournal::ClaimPoolMember(const std::string& machine_id) {
  SB_TRYV(DeletePoolMember(machine_id));
  if (db_->changes() != 1) return Fail(Code::kInternal, "pool member " + machine_id + " has no row");
  return {};
}

Result<> SqliteJournal::InsertCommand(const Command& command) {
  return InsertRow(*db_, "commands", kCommandColumns, command);
}

Result<> SqliteJournal::UpdateCommand(const Command& command) {
  SB_TRY(auto q, db_->Prepare("UPDATE commands SET exit_code = ?, duration_ms = ?, timed_out = ?, oom_killed = ? "
                              "WHERE id = ?"));
  q.Bind(command.exit_code).Bind(command.duration_ms).Bind(command.timed_out).Bind(command.oom_killed);
  return q.Bind(command.id).Run();
}

Result<> SqliteJournal::DeleteCommand(const std::string& id) {
  SB_TRY(auto q, db_->Prepare("DELETE FROM commands WHERE id = ?"));
  return q.Bind(id).Run();
}

Result<std::optional<Command>> SqliteJournal::FindCommand(const std::string& session, const std::string& id) {
  SB_TRY(auto q, db_->Prepare("SELECT " + kCommandColumns + " FROM commands WHERE session = ? AND id = ?"));
  q.Bind(session).Bind(id);
  return ReadOne<Command>(q, ReadCommand);
}

Result<std::vector<Command>> SqliteJournal::ListCommands(const std::string& session) {
  SB_TRY(auto q, db_->Prepare("SELECT " + kCommandColumns +
                              " FROM commands WHERE session = ? ORDER BY started_at DESC, row DESC"));
  q.Bind(session);
  return ReadAll<Command>(q, ReadCommand);
}

Result<std::vector<Command>> SqliteJournal::UnfinishedCommands(const std::string& session) {
  SB_TRY(auto q, db_->Prepare("SELECT " + kCommandColumns +
                              " FROM commands WHERE session = ? AND exit_code IS NULL ORDER BY row"));
  q.Bind(session);
  return ReadAll<Command>(q, ReadCommand);
}

Result<> SqliteJournal::InsertPoolMember(const PoolMember& m) {
  SB_TRY(auto q, db_->Prepare("INSERT INTO pool (machine_id, image, vcpus, created_at) VALUES (?, ?, ?, ?)"));
  return q.Bind(m.machine_id).Bind(m.image).Bind(m.vcpus).Bind(m.created_at).Run();
}

Result<> SqliteJournal::DeletePoolMember(const std::string& machine_id) {
  SB_TRY(auto q, db_->Prepare("DELETE FROM pool WHERE machine_id = ?"));
  return q.Bind(machine_id).Run();
}

Result<std::vector<PoolMember>> SqliteJournal::PoolMembers() {
  SB_TRY(auto q, db_->Prepare("SELECT machine_id, image, vcpus, created_at FROM pool ORDER BY created_at"));
  auto read = [](const Query& row, int c) -> Result<PoolMember> {
    return PoolMember{row.Text(c), row.Text(c + 1), static_cast<int>(row.Int(c + 2)), row.Int(c + 3)};
  };
  return ReadAll<PoolMember>(q, read);
}

Result<std::optional<Layer>> SqliteJournal::FindLayer(const std::string& name) {
  SB_TRY(auto q, db_->Prepare("SELECT " + kLayerColumns + " FROM layers WHERE name = ?"));
  q.Bind(name);
  return ReadOne<Layer>(q, ReadLayer);
}

Result<std::vector<Layer>> SqliteJournal::AllLayers() {
  SB_TRY(auto q, db_->Prepare("SELECT " + kLayerColumns + " FROM layers ORDER BY name"));
  return ReadAll<Layer>(q, ReadLayer);
}

Result<> SqliteJournal::SaveLayer(const Layer& l) {
  SB_TRY(auto q, db_->Prepare("INSERT OR REPLACE INTO layers (" + kLayerColumns + ") VALUES (?, ?, ?, ?, ?, ?, ?)"));
  q.Bind(l.name).Bind(l.digest).Bind(l.bytes).Bind(l.files).Bind(l.durable_at).Bind(l.verified_at).Bind(l.damage);
  return q.Run();
}

Result<> SqliteJournal::DeleteLayer(const std::string& name) {
  SB_TRY(auto q, db_->Prepare("DELETE FROM layers WHERE name = ?"));
  return q.Bind(name).Run();
}

Result<> SqliteJournal::AddNotice(const Notice& n) {
  SB_TRY(auto q, db_->Prepare("INSERT INTO notices (at, team, project, sandbox, text) VALUES (?, ?, ?, ?, ?)"));
  return q.Bind(n.at).Bind(n.team).Bind(n.project).Bind(n.sandbox).Bind(n.text).Run();
}

Result<std::vector<Notice>> SqliteJournal::Notices(const SandboxKey& key) {
  SB_TRY(auto q, db_->Prepare("SELECT at, team, project, sandbox, text FROM notices WHERE team = ? AND project = ? "
                              "AND (? = '' OR sandbox = ?) ORDER BY row DESC LIMIT 200"));
  q.Bind(key.team).Bind(key.project).Bind(key.name).Bind(key.name);
  auto read = [](const Query& row, int c) -> Result<Notice> {
    return Notice{row.Int(c), row.Text(c + 1), row.Text(c + 2), row.Text(c + 3), row.Text(c + 4)};
  };
  return ReadAll<Notice>(q, read);
}

Result<> SqliteJournal::SetNote(const std::string& name, const std::string& value) {
  SB_TRY(auto q, db_->Prepare(value.empty() ? "DELETE FROM notes WHERE name = ?"
                                            : "INSERT OR REPLACE INTO notes (name, value) VALUES (?, ?)"));
  q.Bind(name);
  if (!value.empty()) q.Bind(value);
  return q.Run();
}

Result<std::map<std::string, std::string>> SqliteJournal::Notes(const std::string& prefix) {
  SB_TRY(auto q, db_->Prepare("SELECT name, value FROM notes WHERE substr(name, 1, length(?)) = ?"));
  q.Bind(prefix).Bind(prefix);
  using Pair = std::pair<std::string, std::string>;
  auto read = [](const Query& row, int c) -> Result<Pair> { return Pair{row.Text(c), row.Text(c + 1)}; };
  SB_TRY(auto rows, ReadAll<Pair>(q, read));
  return std::map<std::string, std::string>(rows.begin(), rows.end());
}

Result<> SqliteJournal::PurgeLog() {
  return db_->Exec("PRAGMA wal_checkpoint(TRUNCATE)");
}

}  // namespace sandbar::store
