// RAII over SQLite's C API: a connection with cached prepared statements, a statement in use, a transaction.
// One thread at a time. Errors carry SQLite's own message; a violated UNIQUE is kConflict.
//
//   SB_TRY(auto q, db.Prepare("SELECT a FROM t WHERE b = ?"));
//   q.Bind("x");
//   SB_TRY(bool row, q.Step());
//   if (row) Use(q.Text(0));
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/result.h"

struct sqlite3;
struct sqlite3_stmt;

namespace sandbar::store {

class Query {
 public:
  Query(sqlite3* db, sqlite3_stmt* stmt) : db_(db), stmt_(stmt) {}
  Query(Query&& o) noexcept : db_(o.db_), stmt_(std::exchange(o.stmt_, nullptr)), next_(o.next_) {}
  Query(const Query&) = delete;
  Query& operator=(const Query&) = delete;
  Query& operator=(Query&&) = delete;
  ~Query();  // resets the statement, which stays cached

  // Parameters in order. Text is copied.
  Query& Bind(std::string_view v);
  Query& Bind(const std::string& v) { return Bind(std::string_view(v)); }
  Query& Bind(const char* v) { return Bind(std::string_view(v)); }
  Query& Bind(int64_t v);
  Query& Bind(uint64_t v) { return Bind(static_cast<int64_t>(v)); }
  Query& Bind(int v) { return Bind(static_cast<int64_t>(v)); }
  Query& Bind(uint32_t v) { return Bind(static_cast<int64_t>(v)); }
  Query& Bind(bool v) { return Bind(static_cast<int64_t>(v)); }
  Query& BindNull();
  template <class T>
  Query& Bind(const std::optional<T>& v) {
    return v ? Bind(*v) : BindNull();
  }

  Result<bool> Step();  // true: a row is there
  Result<> Run();       // for statements without rows

  std::string Text(int column) const;
  int64_t Int(int column) const;
  bool IsNull(int column) const;
  std::optional<int64_t> MaybeInt(int column) const;
  std::optional<std::string> MaybeText(int column) const;

 private:
  sqlite3* db_;
  sqlite3_stmt* stmt_;
  int next_ = 1;
};

class Db {
 public:
  static Result<std::unique_ptr<Db>> Open(const std::string& path);
  Db(const Db&) = delete;
  Db& operator=(const Db&) = delete;
  ~Db();

  // `sql` must not be in use already: a Query of it has to be gone first.
  Result<Query> Prepare(std::string_view sql);
  Result<> Exec(const std::string& sql);
  int changes() const;

 private:
  explicit Db(sqlite3* db) : db_(db) {}
  sqlite3* db_;
  std::unordered_map<std::string, sqlite3_stmt*> statements_;
};

// BEGIN IMMEDIATE … COMMIT; rolls back unless Commit() was called.
class Transaction {
 public:
  static Result<Transaction> Begin(Db* db);
  Transaction(Transaction&& o) noexcept : db_(std::exchange(o.db_, nullptr)) {}
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;
  Transaction& operator=(Transaction&&) = delete;
  ~Transaction();
  Result<> Commit();

 private:
  explicit Transaction(Db* db) : db_(db) {}
  Db* db_;
};

}  // namespace sandbar::store
