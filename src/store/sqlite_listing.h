// Pages of a table: the one statement that all lists share, and the cursors between pages.
// Plain functions over the store's connection; used by the SQLite store alone, on its thread.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "store/json_text.h"
#include "store/keys.h"
#include "store/rows.h"
#include "store/sqlite_db.h"

namespace sandbar::store {

// Text of a listing's WHERE and ORDER BY with its parameters. Built per shape of the filter, so that the statements
// stay few and cached.
struct ListSql {
  std::string listing;  // identity for cursors
  std::string column;   // sort column
  std::string where = "1 = 1";
  bool by_text = false;
};

inline void SetPosition(SortBy by, const Sandbox& s, Cursor& cursor) {
  if (by == SortBy::kName) cursor.text = s.name;
  if (by == SortBy::kCreatedAt) cursor.number = s.created_at;
  if (by == SortBy::kStatusUpdatedAt) cursor.number = s.status_updated_at;
}
inline void SetPosition(SortBy by, const Drive& d, Cursor& cursor) {
  if (by == SortBy::kName) cursor.text = d.name;
  if (by == SortBy::kCreatedAt) cursor.number = d.created_at;
  if (by == SortBy::kUpdatedAt) cursor.number = d.updated_at;
}
inline void SetPosition(SortBy, const Snapshot& s, Cursor& cursor) {
  cursor.number = s.created_at;
}
inline void SetPosition(SortBy, const Session& s, Cursor& cursor) {
  cursor.number = s.created_at;
}

// `bind` gives the parameters of sql.where; `read` makes a T of a row.
template <class T, class Binder, class Reader>
Result<Listing<T>> ListRows(Db& db, const ListFilter& filter, ListSql sql, const std::string& table,
                            const std::string& columns, Binder bind, Reader read) {
  sql.listing += filter.ascending ? "/asc" : "/desc";
  const std::string order = filter.ascending ? "ASC" : "DESC";
  const std::string beyond = filter.ascending ? ">" : "<";
  std::optional<Cursor> from;
  if (!filter.cursor.empty()) {
    SB_TRY(from, DecodeCursor(filter.cursor, sql.listing));
    sql.where += " AND (" + sql.column + ", row) " + beyond + " (?, ?)";
  }
  std::string scope;
  if (!filter.team.empty()) scope += "team = ? AND ";
  if (!filter.project.empty()) scope += "project = ? AND ";
  if (filter.since) scope += "created_at > ? AND ";
  if (filter.until) scope += "created_at < ? AND ";
  SB_TRY(auto q, db.Prepare("SELECT " + columns + ", row FROM " + table + " WHERE " + scope + sql.where + " ORDER BY " +
                            sql.column + " " + order + ", row " + order + " LIMIT ?"));
  if (!filter.team.empty()) q.Bind(filter.team);
  if (!filter.project.empty()) q.Bind(filter.project);
  if (filter.since) q.Bind(*filter.since);
  if (filter.until) q.Bind(*filter.until);
  bind(q);
  if (from && sql.by_text) q.Bind(from->text).Bind(from->row);
  if (from && !sql.by_text) q.Bind(from->number).Bind(from->row);
  // One more than asked for tells whether there is a next page.
  q.Bind(filter.limit + 1);
  Listing<T> out;
  Cursor last{.listing = sql.listing};
  const int row_column = static_cast<int>(std::count(columns.begin(), columns.end(), ',')) + 1;
  for (;;) {
    SB_TRY(bool row, q.Step());
    if (!row) return out;
    if (static_cast<int>(out.items.size()) == filter.limit) {
      out.next = EncodeCursor(last);
      return out;
    }
    SB_TRY(T item, read(q, 0));
    last.row = q.Int(row_column);
    SetPosition(filter.sort_by, item, last);
    out.items.push_back(std::move(item));
  }
}

}  // namespace sandbar::store
