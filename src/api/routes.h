// The route table: data, not ifs. One row per method and pattern with its handler and who may call it; the auth-matrix
// test and GET /x/v1/routes are generated from it, so a new route cannot be forgotten.
//
// Pattern segments: a word, alternatives "v2|v3|v4", or "{name}". An optional leading /api is taken off before. The
// words sessions, snapshots and drives never match a parameter after "sandboxes": they are reserved (kReservedNames).
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "async/task.h"
#include "store/record_values.h"

namespace sandbar::api {

struct Call;
using Handler = Task<> (*)(Call*);

// Who may call a route, by its effect and not by its method: a viewer reads, an operator runs and changes, an admin
// manages keys. A call that does more than its route says asks again (Call::Need).
enum class Access { kOpen, kViewer, kOperator, kAdmin };
// Nothing: no key is needed.
std::optional<store::KeyRole> RoleOf(Access access);

struct Route {
  // A row that leaves something out does not compile.
  constexpr Route(std::string_view method, std::string_view pattern, Handler handler, Access access)
      : method(method), pattern(pattern), handler(handler), access(access) {}

  std::string_view method;
  std::string_view pattern;
  Handler handler;
  Access access;
};

// One row with its alternatives spelled out.
struct RouteInfo {
  std::string method;
  std::string pattern;
  std::optional<store::KeyRole> role;  // that a caller needs; absent: the route is open
};

inline constexpr std::string_view kReservedNames[] = {"sessions", "snapshots", "drives"};
bool IsReservedName(std::string_view name);

struct Match {
  const Route* route = nullptr;               // null: no row has this path and method
  std::map<std::string, std::string> params;  // percent-decoded
  std::string version;                        // the "v3" of the path, if it has one
  std::vector<std::string_view> allowed;      // methods that the path does have
};

std::span<const Route> RouteTable();
// `path` as sent, still percent-encoded.
Match MatchRoute(std::span<const Route> table, std::string_view method, std::string_view path);
std::vector<RouteInfo> ExpandRoutes(std::span<const Route> table);

}  // namespace sandbar::api
