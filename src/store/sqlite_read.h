// Rows of a query as records, and a record as a new row. Plain functions over the store's connection; used by the
// SQLite halves of the store alone, on their thread.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "store/keys.h"
#include "store/rows.h"
#include "store/sqlite_db.h"

namespace sandbar::store {

inline const std::string kKeyWhere = " WHERE team = ? AND project = ? AND name = ?";

inline Query& BindKey(Query& q, const SandboxKey& key) {
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

template <class T>
Result<> InsertRow(Db& db, const std::string& table, const std::string& columns, const T& record) {
  SB_TRY(auto q, db.Prepare("INSERT INTO " + table + " (" + columns + ") VALUES (" + Placeholders(columns) + ")"));
  Bind(q, record);
  return q.Run();
}

}  // namespace sandbar::store
