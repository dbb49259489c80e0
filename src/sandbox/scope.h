// Who asks, and how lists are asked for: the values that every role of the domain takes. Plain values, any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sandbox/principal.h"

namespace sandbar::sandbox {

// The team and project that a caller may act on (records.h compares them with rows). Auth has already resolved "*" in a
// token's scope to the project that the request names.
struct Scope {
  std::string team;
  std::string project;       // for routes that name one
  bool any_project = false;  // the token may act on every project of the team (routes that name only a session id)
  bool any_team = false;
  Principal caller;  // who asks; for records and events, not for decisions about rows
};

struct ListQuery {
  int limit = 20;
  std::string cursor;
  std::string sort_by = "createdAt";  // createdAt | name | statusUpdatedAt
  bool ascending = false;
  std::string name_prefix;
  std::optional<std::pair<std::string, std::string>> tag;
  std::string sandbox;  // sessions: only of this name
  // v1 only: exclusive bounds on createdAt, ms
  std::optional<int64_t> since, until;
};

template <class T>
struct Page {
  std::vector<T> items;
  std::string next;  // empty: last page
};

}  // namespace sandbar::sandbox
