// How records are asked for: a sandbox's key, the filter of a list, a page of it, and the functions that edit a record.
// Plain values, shared by both halves of the store (journal.h, directory.h).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "store/records.h"

namespace sandbar::store {

// Names are unique within a project of a team. A key names whichever sandbox has the name now; Sandbox::id names one
// sandbox for good.
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
  std::string cursor;  // opaque: what `next` of the page before said
  SortBy sort_by = SortBy::kCreatedAt;
  bool ascending = false;
  std::string name_prefix;
  std::optional<std::pair<std::string, std::string>> tag;
  std::string sandbox;                  // sessions and snapshots only: of the sandbox with this name
  std::optional<int64_t> since, until;  // exclusive bounds on created_at
};

template <class T>
struct Listing {
  std::vector<T> items;
  std::string next;  // empty: no more
};

// An edit changes the record that it is given. It may run on another thread than the caller's, and more than once: the
// next time on the record as another writer left it. So it works on its argument and on copies, and counts nothing.
using SandboxEdit = std::function<Result<>(Sandbox&)>;
using SnapshotEdit = std::function<Result<>(Snapshot&)>;
using DriveEdit = std::function<Result<>(Drive&)>;
using KeyEdit = std::function<Result<>(Key&)>;

}  // namespace sandbar::store
