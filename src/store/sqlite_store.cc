#include <string>

#include "store/json_text.h"
#include "store/rows.h"
#include "store/schema.h"
#include "store/sqlite_db.h"
#include "store/sqlite_listing.h"
#include "store/store.h"

namespace sandbar::store {
namespace {

constexpr std::string_view kKeyWhere = " WHERE team = ? AND project = ? AND name = ?";

Query& BindKey(Query& q, const SandboxKey& key) {
  return q.Bind(key.team).Bind(key.project).Bind(key.name);
}

template <class T, class Reader>
Result<std::vector<T>> ReadAll(Query& q, Reader read) {
  std::vector<T> out;
  for (;;) {
    SB_TRY(bool row, q.Step());
    if (!row) return out;
    SB_TRY(out.emplace_back(), read(q, 0));
  }
}

template <class T, class Reader>
Result<std::optional<T>> ReadOne(Query& q, Reader read) {
  SB_TRY(bool row, q.Step());
  if (!row) return std::optional<T>();
  SB_TRY(T value, read(q, 0));
  return std::optional<T>(std::move(value));
}

class SqliteStore final : public Store {
 public:
  explicit SqliteStore(std::unique_ptr<Db> db) : db_(std::move(db)) {}

  Result<> Migrate() {
    int64_t version = 0;
    {
      SB_TRY(auto q, db_->Prepare("PRAGMA user_version"));
      SB_TRY(bool row, q.Step());
      if (row) version = q.Int(0);
    }
    if (version > static_cast<int64_t>(kMigrations.size())) {
      return Fail(Code::kInternal, "the database has schema " + std::to_string(version) +
                                       ", this version knows up to " + std::to_string(kMigrations.size()) +
                                       ": it was written by a newer sandbar; upgrade, or use another data directory");
    }
    for (size_t step = static_cast<size_t>(version); step < kMigrations.size(); ++step) {
      SB_TRY(auto tx, Transaction::Begin(db_.get()));
      SB_TRYV(db_->Exec(kMigrations.at(step)));
      SB_TRYV(db_->Exec("PRAGMA user_version = " + std::to_string(step + 1)));
      SB_TRYV(tx.Commit());
    }
    return {};
  }

  // A damaged file often opens well and fails much later; better to say so at start.
  Result<> QuickCheck() {
    SB_TRY(auto q, db_->Prepare("PRAGMA quick_check(1)"));
    SB_TRY(bool row, q.Step());
    if (row && q.Text(0) == "ok") return {};
    return Fail(Code::kInternal, "the database file is damaged (" + (row ? q.Text(0) : std::string("no answer")) +
                                     "); restore it from a backup or move it away");
  }

  Result<> CreateSandbox(const Sandbox& sandbox, const Session& session, const std::string& claimed) override {
    SB_TRY(auto tx, Transaction::Begin(db_.get()));
    SB_TRYV(Insert("sandboxes", kSandboxColumns, sandbox));
    SB_TRYV(InsertSubdomains(sandbox));
    SB_TRYV(Insert("sessions", kSessionColumns, session));
    if (!claimed.empty()) {
      SB_TRYV(DeletePoolMember(claimed));
      if (db_->changes() != 1) return Fail(Code::kInternal, "pool member " + claimed + " has no row");
    }
    return tx.Commit();
  }

  Result<std::optional<Sandbox>> FindSandbox(const SandboxKey& key) override {
    SB_TRY(auto q, db_->Prepare("SELECT " + kSandboxColumns + " FROM sandboxes" + std::string(kKeyWhere)));
    BindKey(q, key);
    return ReadOne<Sandbox>(q, ReadSandbox);
  }

  Result<std::optional<Sandbox>> FindSandboxBySubdomain(const std::string& subdomain) override {
    SB_TRY(auto q, db_->Prepare("SELECT " + kSandboxColumns +
                                " FROM sandboxes WHERE row = (SELECT sandbox FROM subdomains WHERE subdomain = ?)"));
    q.Bind(subdomain);
    return ReadOne<Sandbox>(q, ReadSandbox);
  }

  Result<Sandbox> EditSandbox(const SandboxKey& key, const SandboxEdit& edit) override {
    SB_TRY(auto tx, Transaction::Begin(db_.get()));
    SB_TRY(Sandbox sandbox, Edit(key, edit));
    SB_TRYV(tx.Commit());
    return sandbox;
  }

  Result<> DeleteSandbox(const SandboxKey& key) override {
    SB_TRY(auto tx, Transaction::Begin(db_.get()));
    {
      SB_TRY(auto q, db_->Prepare("DELETE FROM sandboxes" + std::string(kKeyWhere)));
      SB_TRYV(BindKey(q, key).Run());
    }
    {
      SB_TRY(auto q, db_->Prepare("DELETE FROM notices WHERE team = ? AND project = ? AND sandbox = ?"));
      SB_TRYV(q.Bind(key.team).Bind(key.project).Bind(key.name).Run());
    }
    return tx.Commit();
  }

  Result<> PurgeLog() override { return db_->Exec("PRAGMA wal_checkpoint(TRUNCATE)"); }

  Result<Listing<Sandbox>> ListSandboxes(const ListFilter& filter) override {
    ListSql sql{.listing = "sandboxes/createdAt", .column = "created_at"};
    if (filter.sort_by == SortBy::kName) sql = {.listing = "sandboxes/name", .column = "name", .by_text = true};
    if (filter.sort_by == SortBy::kStatusUpdatedAt) {
      sql = {.listing = "sandboxes/statusUpdatedAt", .column = "status_updated_at"};
    }
    if (!filter.name_prefix.empty()) sql.where += " AND substr(name, 1, length(?)) = ?";
    if (filter.tag) sql.where += " AND EXISTS (SELECT 1 FROM json_each(tags) AS t WHERE t.key = ? AND t.value = ?)";
    auto bind = [&filter](Query& q) {
      if (!filter.name_prefix.empty()) q.Bind(filter.name_prefix).Bind(filter.name_prefix);
      if (filter.tag) q.Bind(filter.tag->first).Bind(filter.tag->second);
    };
    return ListRows<Sandbox>(*db_, filter, std::move(sql), "sandboxes", kSandboxColumns, bind, ReadSandbox);
  }

  Result<uint64_t> CountSandboxes() override {
    SB_TRY(auto q, db_->Prepare("SELECT count(*) FROM sandboxes"));
    SB_TRY(bool row, q.Step());
    return row ? static_cast<uint64_t>(q.Int(0)) : 0;
  }

  Result<std::vector<Sandbox>> SandboxesToCollect(int64_t now) override {
    SB_TRY(auto q, db_->Prepare("SELECT " + kSandboxColumns +
                                " FROM sandboxes WHERE collect_after_ms > 0 AND status IN ('stopped', 'failed', "
                                "'aborted') AND status_updated_at <= ? - collect_after_ms "
                                "ORDER BY status_updated_at LIMIT 500"));
    q.Bind(now);
    return ReadAll<Sandbox>(q, ReadSandbox);
  }

  Result<std::vector<ProjectUsage>> Usage() override {
    SB_TRY(auto q, db_->Prepare("SELECT team, project, creations, cpu_ms, memory_mb_ms, ingress, egress FROM usage "
                                "ORDER BY team, project"));
    auto read = [](const Query& row, int c) -> Result<ProjectUsage> {
      auto number = [&row, c](int column) { return static_cast<uint64_t>(row.Int(c + column)); };
      return ProjectUsage{row.Text(c), row.Text(c + 1), number(2), number(3), number(4), number(5), number(6)};
    };
    return ReadAll<ProjectUsage>(q, read);
  }

  Result<Sandbox> SaveSession(const Session& session, const SandboxEdit& edit) override {
    SB_TRY(auto tx, Transaction::Begin(db_.get()));
    SB_TRYV(Upsert(session));
    SB_TRY(Sandbox sandbox, Edit(KeyOf(session), edit));
    SB_TRYV(tx.Commit());
    return sandbox;
  }

  Result<Sandbox> SaveStopped(const Session& session, const Snapshot& snapshot, const SandboxEdit& edit) override {
    SB_TRY(auto tx, Transaction::Begin(db_.get()));
    SB_TRYV(Insert("snapshots", kSnapshotColumns, snapshot));
    SB_TRYV(Upsert(session));
    SB_TRY(Sandbox sandbox, Edit(KeyOf(session), edit));
    SB_TRYV(tx.Commit());
    return sandbox;
  }

  Result<std::optional<Snapshot>> FindSnapshot(const std::string& id) override {
    SB_TRY(auto q, db_->Prepare("SELECT " + kSnapshotColumns + " FROM snapshots WHERE id = ?"));
    q.Bind(id);
    return ReadOne<Snapshot>(q, ReadSnapshot);
  }

  Result<Listing<Snapshot>> ListSnapshots(const ListFilter& filter) override {
    ListSql sql{.listing = "snapshots/createdAt", .column = "created_at"};
    if (!filter.sandbox.empty()) sql.where += " AND sandbox = ?";
    auto bind = [&filter](Query& q) {
      if (!filter.sandbox.empty()) q.Bind(filter.sandbox);
    };
    return ListRows<Snapshot>(*db_, filter, std::move(sql), "snapshots", kSnapshotColumns, bind, ReadSnapshot);
  }

  Result<Snapshot> EditSnapshot(const std::string& id, const SnapshotEdit& edit) override {
    SB_TRY(auto tx, Transaction::Begin(db_.get()));
    SB_TRY(auto found, FindSnapshot(id));
    if (!found) return Fail(Code::kNotFound, "snapshot not found: " + id);
    SB_TRYV(edit(*found));
    {
      SB_TRY(auto q, db_->Prepare("UPDATE snapshots SET " + Assignments(kSnapshotColumns) + " WHERE id = ?"));
      Bind(q, *found);
      SB_TRYV(q.Bind(id).Run());
    }
    SB_TRYV(tx.Commit());
    return *std::move(found);
  }

  Result<std::vector<Snapshot>> SnapshotChildren(const std::string& parent) override {
    SB_TRY(auto q, db_->Prepare("SELECT " + kSnapshotColumns + " FROM snapshots WHERE parent = ? ORDER BY row"));
    q.Bind(parent);
    return ReadAll<Snapshot>(q, ReadSnapshot);
  }

  Result<std::vector<Snapshot>> AllSnapshots() override {
    SB_TRY(auto q, db_->Prepare("SELECT " + kSnapshotColumns + " FROM snapshots ORDER BY row"));
    return ReadAll<Snapshot>(q, ReadSnapshot);
  }

  Result<> InsertDrive(const Drive& drive) override { return Insert("drives", kDriveColumns, drive); }

  Result<std::optional<Drive>> FindDrive(const std::string& team, const std::string& project,
                                         const std::string& name) override {
    SB_TRY(auto q,
           db_->Prepare("SELECT " + kDriveColumns + " FROM drives" + std::string(kKeyWhere) + " AND deleted = 0"));
    BindKey(q, {team, project, name});
    return ReadOne<Drive>(q, ReadDrive);
  }

  Result<Listing<Drive>> ListDrives(const ListFilter& filter) override {
    ListSql sql{.listing = "drives/createdAt", .column = "created_at"};
    if (filter.sort_by == SortBy::kName) sql = {.listing = "drives/name", .column = "name", .by_text = true};
    if (filter.sort_by == SortBy::kUpdatedAt) sql = {.listing = "drives/updatedAt", .column = "updated_at"};
    sql.where = "deleted = 0";
    if (!filter.name_prefix.empty()) sql.where += " AND substr(name, 1, length(?)) = ?";
    auto bind = [&filter](Query& q) {
      if (!filter.name_prefix.empty()) q.Bind(filter.name_prefix).Bind(filter.name_prefix);
    };
    return ListRows<Drive>(*db_, filter, std::move(sql), "drives", kDriveColumns, bind, ReadDrive);
  }

  Result<Drive> EditDrive(const std::string& id, const DriveEdit& edit) override {
    SB_TRY(auto tx, Transaction::Begin(db_.get()));
    std::optional<Drive> found;
    {
      SB_TRY(auto q, db_->Prepare("SELECT " + kDriveColumns + " FROM drives WHERE id = ?"));
      q.Bind(id);
      SB_TRY(found, ReadOne<Drive>(q, ReadDrive));
    }
    if (!found) return Fail(Code::kNotFound, "drive not found: " + id);
    SB_TRYV(edit(*found));
    {
      SB_TRY(auto q, db_->Prepare("UPDATE drives SET " + Assignments(kDriveColumns) + " WHERE id = ?"));
      Bind(q, *found);
      SB_TRYV(q.Bind(id).Run());
    }
    SB_TRYV(tx.Commit());
    return *std::move(found);
  }

  Result<std::vector<Drive>> AllDrives() override {
    SB_TRY(auto q, db_->Prepare("SELECT " + kDriveColumns + " FROM drives ORDER BY row"));
    return ReadAll<Drive>(q, ReadDrive);
  }

  Result<> ForgetDrive(const std::string& id) override {
    SB_TRY(auto q, db_->Prepare("DELETE FROM drives WHERE id = ?"));
    return q.Bind(id).Run();
  }

  Result<std::optional<Session>> FindSession(const std::string& id) override {
    SB_TRY(auto q, db_->Prepare("SELECT " + kSessionColumns + " FROM sessions WHERE id = ?"));
    q.Bind(id);
    return ReadOne<Session>(q, ReadSession);
  }

  Result<std::optional<Session>> FindSessionByMachine(const std::string& machine_id) override {
    SB_TRY(auto q, db_->Prepare("SELECT " + kSessionColumns + " FROM sessions WHERE machine_id = ?"));
    q.Bind(machine_id);
    return ReadOne<Session>(q, ReadSession);
  }

  Result<Listing<Session>> ListSessions(const ListFilter& filter) override {
    ListSql sql{.listing = "sessions/createdAt", .column = "created_at"};
    if (!filter.sandbox.empty()) sql.where += " AND sandbox = ?";
    auto bind = [&filter](Query& q) {
      if (!filter.sandbox.empty()) q.Bind(filter.sandbox);
    };
    return ListRows<Session>(*db_, filter, std::move(sql), "sessions", kSessionColumns, bind, ReadSession);
  }

  Result<std::vector<Session>> UnfinishedSessions() override {
    SB_TRY(auto q, db_->Prepare("SELECT " + kSessionColumns +
                                " FROM sessions WHERE status NOT IN ('stopped', 'failed', 'aborted') ORDER BY row"));
    return ReadAll<Session>(q, ReadSession);
  }

  Result<std::vector<std::string>> SessionIds(const SandboxKey& key) override {
    SB_TRY(auto q, db_->Prepare("SELECT id FROM sessions WHERE team = ? AND project = ? AND sandbox = ?"));
    BindKey(q, key);
    return ReadAll<std::string>(q,
                                [](const Query& row, int column) -> Result<std::string> { return row.Text(column); });
  }

  Result<std::optional<Layer>> FindLayer(const std::string& name) override {
    SB_TRY(auto q, db_->Prepare("SELECT " + std::string(kLayerColumns) + " FROM layers WHERE name = ?"));
    q.Bind(name);
    return ReadOne<Layer>(q, ReadLayer);
  }
  Result<std::vector<Layer>> AllLayers() override {
    SB_TRY(auto q, db_->Prepare("SELECT " + std::string(kLayerColumns) + " FROM layers ORDER BY name"));
    return ReadAll<Layer>(q, ReadLayer);
  }
  Result<> SaveLayer(const Layer& l) override {
    SB_TRY(auto q, db_->Prepare("INSERT OR REPLACE INTO layers (" + std::string(kLayerColumns) +
                                ") VALUES (?, ?, ?, ?, ?, ?, ?)"));
    q.Bind(l.name).Bind(l.digest).Bind(l.bytes).Bind(l.files).Bind(l.durable_at).Bind(l.verified_at).Bind(l.damage);
    return q.Run();
  }
  Result<> DeleteLayer(const std::string& name) override {
    SB_TRY(auto q, db_->Prepare("DELETE FROM layers WHERE name = ?"));
    return q.Bind(name).Run();
  }

  Result<> AddNotice(const Notice& n) override {
    SB_TRY(auto q, db_->Prepare("INSERT INTO notices (at, team, project, sandbox, text) VALUES (?, ?, ?, ?, ?)"));
    return q.Bind(n.at).Bind(n.team).Bind(n.project).Bind(n.sandbox).Bind(n.text).Run();
  }
  Result<std::vector<Notice>> Notices(const SandboxKey& key) override {
    SB_TRY(auto q, db_->Prepare("SELECT at, team, project, sandbox, text FROM notices WHERE team = ? AND project = ? "
                                "AND (? = '' OR sandbox = ?) ORDER BY row DESC LIMIT 200"));
    q.Bind(key.team).Bind(key.project).Bind(key.name).Bind(key.name);
    auto read = [](const Query& row, int c) -> Result<Notice> {
      return Notice{row.Int(c), row.Text(c + 1), row.Text(c + 2), row.Text(c + 3), row.Text(c + 4)};
    };
    return ReadAll<Notice>(q, read);
  }

  Result<> SetNote(const std::string& name, const std::string& value) override {
    SB_TRY(auto q, db_->Prepare(value.empty() ? "DELETE FROM notes WHERE name = ?"
                                              : "INSERT OR REPLACE INTO notes (name, value) VALUES (?, ?)"));
    q.Bind(name);
    if (!value.empty()) q.Bind(value);
    return q.Run();
  }
  Result<std::map<std::string, std::string>> Notes(const std::string& prefix) override {
    SB_TRY(auto q, db_->Prepare("SELECT name, value FROM notes WHERE substr(name, 1, length(?)) = ?"));
    q.Bind(prefix).Bind(prefix);
    using Pair = std::pair<std::string, std::string>;
    auto read = [](const Query& row, int c) -> Result<Pair> { return Pair{row.Text(c), row.Text(c + 1)}; };
    SB_TRY(auto rows, ReadAll<Pair>(q, read));
    return std::map<std::string, std::string>(rows.begin(), rows.end());
  }

  Result<> InsertCommand(const Command& command) override { return Insert("commands", kCommandColumns, command); }

  Result<> UpdateCommand(const Command& command) override {
    SB_TRY(auto q, db_->Prepare("UPDATE commands SET exit_code = ?, duration_ms = ?, timed_out = ?, oom_killed = ? "
                                "WHERE id = ?"));
    q.Bind(command.exit_code).Bind(command.duration_ms).Bind(command.timed_out).Bind(command.oom_killed);
    return q.Bind(command.id).Run();
  }

  Result<> DeleteCommand(const std::string& id) override {
    SB_TRY(auto q, db_->Prepare("DELETE FROM commands WHERE id = ?"));
    return q.Bind(id).Run();
  }

  Result<std::optional<Command>> FindCommand(const std::string& session, const std::string& id) override {
    SB_TRY(auto q, db_->Prepare("SELECT " + kCommandColumns + " FROM commands WHERE session = ? AND id = ?"));
    q.Bind(session).Bind(id);
    return ReadOne<Command>(q, ReadCommand);
  }

  Result<std::vector<Command>> ListCommands(const std::string& session) override {
    SB_TRY(auto q, db_->Prepare("SELECT " + kCommandColumns +
                                " FROM commands WHERE session = ? ORDER BY started_at DESC, row DESC"));
    q.Bind(session);
    return ReadAll<Command>(q, ReadCommand);
  }

  Result<std::vector<Command>> UnfinishedCommands(const std::string& session) override {
    SB_TRY(auto q, db_->Prepare("SELECT " + kCommandColumns +
                                " FROM commands WHERE session = ? AND exit_code IS NULL ORDER BY row"));
    q.Bind(session);
    return ReadAll<Command>(q, ReadCommand);
  }

  Result<> InsertPoolMember(const PoolMember& m) override {
    SB_TRY(auto q, db_->Prepare("INSERT INTO pool (machine_id, image, vcpus, created_at) VALUES (?, ?, ?, ?)"));
    return q.Bind(m.machine_id).Bind(m.image).Bind(m.vcpus).Bind(m.created_at).Run();
  }

  Result<> DeletePoolMember(const std::string& machine_id) override {
    SB_TRY(auto q, db_->Prepare("DELETE FROM pool WHERE machine_id = ?"));
    return q.Bind(machine_id).Run();
  }

  Result<std::vector<PoolMember>> PoolMembers() override {
    SB_TRY(auto q, db_->Prepare("SELECT machine_id, image, vcpus, created_at FROM pool ORDER BY created_at"));
    auto read = [](const Query& row, int c) -> Result<PoolMember> {
      return PoolMember{row.Text(c), row.Text(c + 1), static_cast<int>(row.Int(c + 2)), row.Int(c + 3)};
    };
    return ReadAll<PoolMember>(q, read);
  }

  Result<> InsertToken(const Token& t) override {
    SB_TRY(auto q, db_->Prepare("INSERT INTO tokens (id, sha256_hex, name, team, project, created_at) "
                                "VALUES (?, ?, ?, ?, ?, ?)"));
    return q.Bind(t.id).Bind(t.sha256_hex).Bind(t.name).Bind(t.team).Bind(t.project).Bind(t.created_at).Run();
  }

  Result<std::vector<Token>> Tokens() override {
    SB_TRY(auto q, db_->Prepare("SELECT id, sha256_hex, name, team, project, created_at FROM tokens"));
    auto read = [](const Query& row, int c) -> Result<Token> {
      return Token{row.Text(c), row.Text(c + 1), row.Text(c + 2), row.Text(c + 3), row.Text(c + 4), row.Int(c + 5)};
    };
    return ReadAll<Token>(q, read);
  }

 private:
  static constexpr const char* kLayerColumns = "name, digest, bytes, files, durable_at, verified_at, damage";
  static Result<Layer> ReadLayer(const Query& row, int c) {
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

  template <class T>
  Result<> Insert(const std::string& table, const std::string& columns, const T& record) {
    SB_TRY(auto q, db_->Prepare("INSERT INTO " + table + " (" + columns + ") VALUES (" + Placeholders(columns) + ")"));
    Bind(q, record);
    return q.Run();
  }

  Result<> Upsert(const Session& session) {
    {
      SB_TRY(auto q, db_->Prepare("UPDATE sessions SET " + Assignments(kSessionColumns) + " WHERE id = ?"));
      Bind(q, session);
      SB_TRYV(q.Bind(session.id).Run());
    }
    if (db_->changes() > 0) return {};
    return Insert("sessions", kSessionColumns, session);
  }

  Result<> InsertSubdomains(const Sandbox& sandbox) {
    for (const PortRoute& route : sandbox.routes) {
      SB_TRY(auto q, db_->Prepare("INSERT INTO subdomains (subdomain, sandbox) SELECT ?, row FROM sandboxes" +
                                  std::string(kKeyWhere)));
      q.Bind(route.subdomain);
      SB_TRYV(BindKey(q, KeyOf(sandbox)).Run());
    }
    return {};
  }
  Result<> DeleteSubdomains(const SandboxKey& key) {
    SB_TRY(auto q, db_->Prepare("DELETE FROM subdomains WHERE sandbox = (SELECT row FROM sandboxes" +
                                std::string(kKeyWhere) + ")"));
    return BindKey(q, key).Run();
  }

  Result<Sandbox> Edit(const SandboxKey& key, const SandboxEdit& edit) {
    SB_TRY(auto found, FindSandbox(key));
    if (!found) return Fail(Code::kNotFound, "sandbox not found: " + key.name);
    if (edit) {
      const std::vector<PortRoute> before = found->routes;
      SB_TRYV(edit(*found));
      SB_TRY(auto q, db_->Prepare("UPDATE sandboxes SET " + Assignments(kSandboxColumns) + std::string(kKeyWhere)));
      Bind(q, *found);
      SB_TRYV(BindKey(q, key).Run());
      if (found->routes != before) {
        SB_TRYV(DeleteSubdomains(key));
        SB_TRYV(InsertSubdomains(*found));
      }
    }
    return *std::move(found);
  }

  std::unique_ptr<Db> db_;
};

}  // namespace

Result<std::unique_ptr<Store>> OpenSqlite(const std::string& path) {
  SB_TRY(auto db, Db::Open(path));
  auto store = std::make_unique<SqliteStore>(std::move(db));
  if (auto r = store->QuickCheck(); !r) return std::unexpected(std::move(r).error().Context("open " + path));
  if (auto r = store->Migrate(); !r) return std::unexpected(std::move(r).error().Context("open " + path));
  return store;
}

}  // namespace sandbar::store
