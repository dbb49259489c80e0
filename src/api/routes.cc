#include "api/routes.h"

#include <algorithm>

#include "api/handlers.h"
#include "wire/url.h"

namespace sandbar::api {
namespace {

#define SB_V2 "/v2|v3|v4/sandboxes"
#define SB_SESSION SB_V2 "/sessions/{session}"
#define SB_V1 "/v1/sandboxes"

constexpr Route kRoutes[] = {
    {"GET", "/health", Health, Access::kOpen},
    {"HEAD", "/health", Health, Access::kOpen},
    {"GET", "/.well-known/jwks", Jwks, Access::kOpen},
    {"GET", "/sdk/register.mjs", SdkRegister, Access::kOpen},
    {"GET", "/sdk/sandbar.py", SdkPython, Access::kOpen},
    {"GET", "/sdk/env.sh", SdkEnv},
    {"GET", "/llms.txt", LlmsText, Access::kOpen},
    {"GET", "/openapi.json", OpenApi, Access::kOpen},

    {"POST", SB_V2, CreateSandbox},
    {"GET", SB_V2, ListSandboxes},
    {"GET", SB_V2 "/{name}", GetSandbox},
    {"PATCH", SB_V2 "/{name}", UpdateSandbox},
    {"DELETE", SB_V2 "/{name}", DeleteSandbox},
    {"POST", SB_V2 "/{name}/fork", ForkSandbox},

    {"GET", SB_V2 "/sessions", ListSessions},
    {"GET", SB_SESSION, GetSession},
    {"POST", SB_SESSION "/stop", StopSession},
    {"POST", SB_SESSION "/extend-timeout", ExtendTimeout},
    {"POST", SB_SESSION "/network-policy", SetNetworkPolicy},
    {"POST", SB_SESSION "/snapshot", TakeSnapshot},
    {"POST", SB_SESSION "/interactive", OpenInteractive},

    {"POST", SB_SESSION "/cmd", StartCommand},
    {"GET", SB_SESSION "/cmd", ListCommands},
    {"GET", SB_SESSION "/cmd/{command}", GetCommand},
    {"GET", SB_SESSION "/cmd/{command}/logs", StreamLogs},
    {"POST", SB_SESSION "/cmd/{command}/kill", KillCommand},

    {"POST", SB_SESSION "/fs/read", ReadFile},
    {"POST", SB_SESSION "/fs/write", WriteFiles},
    {"POST", SB_SESSION "/fs/mkdir", MakeDir},

    {"GET", SB_V2 "/snapshots", ListSnapshots},
    {"GET", SB_V2 "/snapshots/tree", GetSnapshotTree},
    {"GET", SB_V2 "/snapshots/{snapshot}", GetSnapshot},
    {"DELETE", SB_V2 "/snapshots/{snapshot}", DeleteSnapshot},
    {"GET", SB_V2 "/drives", ListDrives},
    {"POST", SB_V2 "/drives/{drive}", MakeDrive},
    {"DELETE", SB_V2 "/drives/{drive}", DeleteDrive},
    {"GET", "/v1/drives", ListDrives},
    {"POST", "/v1/drives/{drive}", MakeDrive},
    {"DELETE", "/v1/drives/{drive}", DeleteDrive},

    // v1: the sandbox is the session. The kill path has no /cmd/ in it: that is what those clients send.
    {"POST", SB_V1, CreateSandbox},
    {"GET", SB_V1, ListSessions},
    {"GET", SB_V1 "/{session}", GetSession},
    {"POST", SB_V1 "/{session}/stop", StopSession},
    {"POST", SB_V1 "/{session}/extend-timeout", ExtendTimeout},
    {"POST", SB_V1 "/{session}/network-policy", SetNetworkPolicy},
    {"POST", SB_V1 "/{session}/snapshot", TakeSnapshot},
    {"POST", SB_V1 "/{session}/cmd", StartCommand},
    {"GET", SB_V1 "/{session}/cmd", ListCommands},
    {"GET", SB_V1 "/{session}/cmd/{command}", GetCommand},
    {"GET", SB_V1 "/{session}/cmd/{command}/logs", StreamLogs},
    {"POST", SB_V1 "/{session}/{command}/kill", KillCommand},
    {"POST", SB_V1 "/{session}/fs/read", ReadFile},
    {"POST", SB_V1 "/{session}/fs/write", WriteFiles},
    {"POST", SB_V1 "/{session}/fs/mkdir", MakeDir},
    {"GET", SB_V1 "/snapshots", ListSnapshots},
    {"GET", SB_V1 "/snapshots/{snapshot}", GetSnapshot},
    {"DELETE", SB_V1 "/snapshots/{snapshot}", DeleteSnapshot},

    // What the Vercel CLI asks to find out where it is.
    {"GET", "/v2/user", GetUser},
    {"GET", "/v2/teams", ListTeams},
    {"GET", "/v2/teams/{team}", GetTeam},
    {"GET", "/v2/projects/{project}", GetProject},
    {"POST", "/v11/projects", CreateProject},

    {"POST", "/mcp", Mcp},
    {"POST", "/mcp/s/{name}", Mcp},

    {"GET", "/x/v1/info", NativeInfo},
    {"GET", "/x/v1/routes", NativeRoutes},
    {"GET", "/x/v1/images", NativeImages},
    {"GET", "/x/v1/usage", NativeUsage},
    {"GET", "/x/v1/sandboxes/{name}", NativeInspect},
    {"POST", "/x/v1/sandboxes/{name}/promote", NativePromote},
    {"POST", "/x/v1/sandboxes/{name}/fork", ForkSandbox},
    {"POST", "/x/v1/sandboxes/{name}/pause", NativePause},
    {"POST", "/x/v1/sandboxes/{name}/resume", NativeResume},
    {"POST", "/x/v1/snapshots/{snapshot}/verify", NativeVerifySnapshot},
    {"GET", "/x/v1/notices", NativeNotices},
    {"GET", "/x/v1/diff", NativeDiff},
    {"POST", "/x/v1/race", NativeRace},
    {"POST", "/x/v1/sandboxes/{name}/code", RunCode},
    {"GET", "/x/v1/sandboxes/{name}/contexts", ListContexts},
    {"POST", "/x/v1/sandboxes/{name}/contexts", CreateContext},
    {"DELETE", "/x/v1/sandboxes/{name}/contexts/{context}", DeleteContext},
    {"POST", "/x/v1/sandboxes/{name}/contexts/{context}/interrupt", InterruptContext},
    {"POST", "/x/v1/sandboxes/{name}/contexts/{context}/restart", RestartContext},
    {"GET", "/x/v1/terminal", ServeTerminal, Access::kOpen},  // a ticket opens it
    {"POST", "/x/v1/sessions/{session}/commands", NativeStartCommand},
    {"GET", "/x/v1/sessions/{session}/commands/{command}/output", NativeFollowOutput},
    {"GET", "/x/v1/sessions/{session}/commands/{command}/stdin", NativeGetInput},
    {"POST", "/x/v1/sessions/{session}/commands/{command}/stdin", NativeWriteInput},
    {"POST", "/x/v1/sessions/{session}/commands/{command}/resize", NativeResize},
    {"GET", "/x/v1/sessions/{session}/denials", NativeDenials},
    {"GET", "/x/v1/sessions/{session}/network/log", NativeNetworkLog},
    {"GET", "/x/v1/sessions/{session}/network/suggest", NativeNetworkSuggest},
    {"POST", "/x/v1/sessions/{session}/network/test", NativeNetworkTest},
    {"POST", "/x/v1/sandboxes/{name}/routes/{port}/token", MakeRouteToken},
    {"DELETE", "/x/v1/sandboxes/{name}/routes/{port}/token", RemoveRouteToken},
    {"GET", "/x/v1/sessions/{session}/ports/{port}", ForwardPort},
};

#undef SB_V2
#undef SB_SESSION
#undef SB_V1

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> out;
  while (true) {
    size_t end = text.find(separator);
    out.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return out;
    text.remove_prefix(end + 1);
  }
}

bool Has(std::span<const std::string_view> list, std::string_view item) {
  return std::ranges::find(list, item) != list.end();
}

bool IsVersion(std::string_view segment) {
  return segment.size() > 1 && segment.front() == 'v' &&
         std::ranges::all_of(segment.substr(1), [](char c) { return c >= '0' && c <= '9'; });
}

// Fills `params` when the whole path fits.
bool Fits(std::string_view pattern, const std::vector<std::string>& path, std::map<std::string, std::string>& params) {
  auto segments = Split(pattern.substr(1), '/');
  if (segments.size() != path.size()) return false;
  std::map<std::string, std::string> found;
  for (size_t i = 0; i < path.size(); ++i) {
    std::string_view want = segments[i];
    if (want.front() == '{') {
      // Reserved words stand right after "sandboxes" and are never the name or id of one.
      if (path[i].empty() || (i > 0 && segments[i - 1] == "sandboxes" && IsReservedName(path[i]))) return false;
      found.emplace(want.substr(1, want.size() - 2), path[i]);
    } else if (!Has(Split(want, '|'), path[i])) {
      return false;
    }
  }
  params = std::move(found);
  return true;
}

}  // namespace

bool IsReservedName(std::string_view name) {
  return Has(kReservedNames, name);
}

std::span<const Route> RouteTable() {
  return kRoutes;
}

Match MatchRoute(std::span<const Route> table, std::string_view method, std::string_view path) {
  Match match;
  auto segments = wire::SplitPath(path);
  if (!segments) return match;
  if (!segments->empty() && segments->front() == "api") segments->erase(segments->begin());
  for (const std::string& s : *segments) {
    if (match.version.empty() && IsVersion(s)) match.version = s;
  }
  std::map<std::string, std::string> params;
  for (const Route& route : table) {
    if (!Fits(route.pattern, *segments, params)) continue;
    if (match.route == nullptr && route.method == method) {
      match.route = &route;
      match.params = params;
    }
    if (!Has(match.allowed, route.method)) match.allowed.push_back(route.method);
  }
  return match;
}

std::vector<RouteInfo> ExpandRoutes(std::span<const Route> table) {
  std::vector<RouteInfo> out;
  for (const Route& route : table) {
    std::vector<std::string> patterns{""};
    for (std::string_view segment : Split(route.pattern.substr(1), '/')) {
      std::vector<std::string> longer;
      for (const std::string& head : patterns) {
        for (std::string_view word : Split(segment, '|')) longer.push_back(head + "/" + std::string(word));
      }
      patterns = std::move(longer);
    }
    for (std::string& pattern : patterns) {
      RouteInfo info{std::string(route.method), std::move(pattern), route.access == Access::kToken};
      out.push_back(std::move(info));
    }
  }
  return out;
}

}  // namespace sandbar::api
