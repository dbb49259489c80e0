#include "store/sqlite_db.h"

#include <fcntl.h>
#include <sqlite3.h>

#include "base/fd.h"
#include "base/log.h"

namespace sandbar::store {
namespace {

std::unexpected<Error> SqlError(sqlite3* db, int rc, std::string_view doing,
                                std::source_location where = std::source_location::current()) {
  int extended = db != nullptr ? sqlite3_extended_errcode(db) : rc;
  std::string message = std::string(doing) + ": ";
  message += db != nullptr ? sqlite3_errmsg(db) : sqlite3_errstr(rc);
  Code code = Code::kInternal;
  if (extended == SQLITE_CONSTRAINT_UNIQUE || extended == SQLITE_CONSTRAINT_PRIMARYKEY) code = Code::kConflict;
  if ((rc & 0xff) == SQLITE_FULL || (rc & 0xff) == SQLITE_IOERR) code = Code::kIo;
  const int system = db != nullptr ? sqlite3_system_errno(db) : 0;
  if ((rc & 0xff) == SQLITE_FULL || (code == Code::kIo && (system == ENOSPC || system == EDQUOT))) {
    code = Code::kNoSpace;
    message = "the server's disk is full: " + message;
  }
  if ((rc & 0xff) == SQLITE_BUSY) code = Code::kUnavailable;
  if ((rc & 0xff) == SQLITE_CORRUPT || (rc & 0xff) == SQLITE_NOTADB) {
    message += " (the database file is damaged; restore it from a backup or move it away)";
  }
  return Fail(code, std::move(message), where);
}

}  // namespace

Query::~Query() {
  if (stmt_ == nullptr) return;
  sqlite3_reset(stmt_);
  sqlite3_clear_bindings(stmt_);
}

Query& Query::Bind(std::string_view v) {
  // SQLITE_TRANSIENT copies, so callers need not keep temporaries alive until Step. Its macro is an old-style cast.
  const auto transient = reinterpret_cast<sqlite3_destructor_type>(-1);
  sqlite3_bind_text64(stmt_, next_++, v.data() != nullptr ? v.data() : "", v.size(), transient, SQLITE_UTF8);
  return *this;
}

Query& Query::Bind(int64_t v) {
  sqlite3_bind_int64(stmt_, next_++, v);
  return *this;
}

Query& Query::BindNull() {
  sqlite3_bind_null(stmt_, next_++);
  return *this;
}

Result<bool> Query::Step() {
  int rc = sqlite3_step(stmt_);
  if (rc == SQLITE_ROW) return true;
  if (rc == SQLITE_DONE) return false;
  return SqlError(db_, rc, "database");
}

Result<> Query::Run() {
  SB_TRY(bool row, Step());
  while (row) {
    SB_TRY(row, Step());
  }
  return {};
}

std::string Query::Text(int column) const {
  const auto* p = reinterpret_cast<const char*>(sqlite3_column_text(stmt_, column));
  if (p == nullptr) return {};
  return std::string(p, static_cast<size_t>(sqlite3_column_bytes(stmt_, column)));
}

int64_t Query::Int(int column) const {
  return sqlite3_column_int64(stmt_, column);
}

bool Query::IsNull(int column) const {
  return sqlite3_column_type(stmt_, column) == SQLITE_NULL;
}

std::optional<int64_t> Query::MaybeInt(int column) const {
  if (IsNull(column)) return std::nullopt;
  return Int(column);
}

std::optional<std::string> Query::MaybeText(int column) const {
  if (IsNull(column)) return std::nullopt;
  return Text(column);
}

Result<std::unique_ptr<Db>> Db::Open(const std::string& path) {
  // Environments of sandboxes are in it. SQLite gives its other files the same mode.
  Fd created(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!created) return FailErrno("open " + path);
  created.Reset();
  sqlite3* raw = nullptr;
  int rc =
      sqlite3_open_v2(path.c_str(), &raw, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr);
  std::unique_ptr<Db> db(new Db(raw));
  if (rc != SQLITE_OK) return SqlError(raw, rc, "open " + path);
  sqlite3_extended_result_codes(raw, 1);
  sqlite3_busy_timeout(raw, 5000);
  for (const char* pragma : {"PRAGMA journal_mode=WAL", "PRAGMA synchronous=NORMAL", "PRAGMA foreign_keys=ON",
                             "PRAGMA journal_size_limit=16777216",
                             // Deleted rows are overwritten with zeros instead of lying about in free pages.
                             "PRAGMA secure_delete=ON"}) {
    if (auto r = db->Exec(pragma); !r) return std::unexpected(std::move(r).error().Context("open " + path));
  }
  return db;
}

Db::~Db() {
  for (auto& [sql, stmt] : statements_) sqlite3_finalize(stmt);
  if (sqlite3_close(db_) != SQLITE_OK) log::Error("database closed with statements in use");
}

Result<Query> Db::Prepare(std::string_view sql) {
  std::string key(sql);
  auto it = statements_.find(key);
  if (it == statements_.end()) {
    sqlite3_stmt* stmt = nullptr;
    int rc =
        sqlite3_prepare_v3(db_, key.c_str(), static_cast<int>(key.size()), SQLITE_PREPARE_PERSISTENT, &stmt, nullptr);
    if (rc != SQLITE_OK) return SqlError(db_, rc, "prepare");
    it = statements_.emplace(std::move(key), stmt).first;
  }
  SB_CHECK(sqlite3_stmt_busy(it->second) == 0);
  return Query(db_, it->second);
}

Result<> Db::Exec(const std::string& sql) {
  int rc = sqlite3_exec(db_, sql.c_str(), nullptr, nullptr, nullptr);
  if (rc != SQLITE_OK) return SqlError(db_, rc, "database");
  return {};
}

int Db::changes() const {
  return sqlite3_changes(db_);
}

Result<Transaction> Transaction::Begin(Db* db) {
  SB_TRYV(db->Exec("BEGIN IMMEDIATE"));
  return Transaction(db);
}

Transaction::~Transaction() {
  if (db_ == nullptr) return;
  if (auto r = db_->Exec("ROLLBACK"); !r) log::Error("rollback: {}", r.error().message);
}

Result<> Transaction::Commit() {
  SB_TRYV(db_->Exec("COMMIT"));
  db_ = nullptr;
  return {};
}

}  // namespace sandbar::store
