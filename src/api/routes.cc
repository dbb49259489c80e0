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
    {"GET", "/.well-known/openid-configuration", OAuthMetadata, Access::kOpen},
    {"POST", "/x/v1/oauth/device", StartLogin, Access::kOpen},
    {"POST", "/x/v1/oauth/token", PollLogin, Access::kOpen},
    {"POST", "/x/v1/oauth/revoke", Logout, Access::kOpen},
    {"POST", "/x/v1/oauth/introspect", IntrospectToken, Access::kOpen},
    {"GET", "/login", LoginPage, Access::kOpen},
    {"GET", "/sdk/register.mjs", SdkRegister, Access::kOpen},
    {"GET", "/sdk/sandbar.py", SdkPython, Access::kOpen},
    {"GET", "/sdk/env.sh", SdkEnv, Access::kViewer},  // mints: no more role and life than the caller has
    {"GET", "/llms.txt", LlmsText, Access::kOpen},
    {"GET", "/openapi.json", OpenApi, Access::kOpen},

    {"POST", SB_V2, CreateSandbox, Access::kOperator},
    {"GET", SB_V2, ListSandboxes, Access::kViewer},
    {"GET", SB_V2 "/{name}", GetSandbox, Access::kViewer},  // with ?resume=true: kOperator
    {"PATCH", SB_V2 "/{name}", UpdateSandbox, Access::kOperator},
    {"DELETE", SB_V2 "/{name}", DeleteSandbox, Access::kOperator},
    {"POST", SB_V2 "/{name}/fork", ForkSandbox, Access::kOperator},

    {"GET", SB_V2 "/sessions", ListSessions, Access::kViewer},
    {"GET", SB_SESSION, GetSession, Access::kViewer},
    {"POST", SB_SESSION "/stop", StopSession, Access::kOperator},
    {"POST", SB_SESSION "/extend-timeout", ExtendTimeout, Access::kOperator},
    {"POST", SB_SESSION "/network-policy", SetNetworkPolicy, Access::kOperator},
    {"POST", SB_SESSION "/snapshot", TakeSnapshot, Access::kOperator},
    {"POST", SB_SESSION "/interactive", OpenInteractive, Access::kOperator},

    {"POST", SB_SESSION "/cmd", StartCommand, Access::kOperator},
    {"GET", SB_SESSION "/cmd", ListCommands, Access::kViewer},
    {"GET", SB_SESSION "/cmd/{command}", GetCommand, Access::kViewer},
    {"GET", SB_SESSION "/cmd/{command}/logs", StreamLogs, Access::kViewer},
    {"POST", SB_SESSION "/cmd/{command}/kill", KillCommand, Access::kOperator},

    {"POST", SB_SESSION "/fs/read", ReadFile, Access::kViewer},
    {"POST", SB_SESSION "/fs/write", WriteFiles, Access::kOperator},
    {"POST", SB_SESSION "/fs/mkdir", MakeDir, Access::kOperator},

    {"GET", SB_V2 "/snapshots", ListSnapshots, Access::kViewer},
    {"GET", SB_V2 "/snapshots/tree", GetSnapshotTree, Access::kViewer},
    {"GET", SB_V2 "/snapshots/{snapshot}", GetSnapshot, Access::kViewer},
    {"DELETE", SB_V2 "/snapshots/{snapshot}", DeleteSnapshot, Access::kOperator},
    {"GET", SB_V2 "/drives", ListDrives, Access::kViewer},
    {"POST", SB_V2 "/drives/{drive}", MakeDrive, Access::kOperator},
    {"DELETE", SB_V2 "/drives/{drive}", DeleteDrive, Access::kOperator},
    {"GET", "/v1/drives", ListDrives, Access::kViewer},
    {"POST", "/v1/drives/{drive}", MakeDrive, Access::kOperator},
    {"DELETE", "/v1/drives/{drive}", DeleteDrive, Access::kOperator},

    // v1: the sandbox is the session. The kill path has no /cmd/ in it: that is what those clients send.
    {"POST", SB_V1, CreateSandbox, Access::kOperator},
    {"GET", SB_V1, ListSessions, Access::kViewer},
    {"GET", SB_V1 "/{session}", GetSession, Access::kViewer},
    {"POST", SB_V1 "/{session}/stop", StopSession, Access::kOperator},
    {"POST", SB_V1 "/{session}/extend-timeout", ExtendTimeout, Access::kOperator},
    {"POST", SB_V1 "/{session}/network-policy", SetNetworkPolicy, Access::kOperator},
    {"POST", SB_V1 "/{session}/snapshot", TakeSnapshot, Access::kOperator},
    {"POST", SB_V1 "/{session}/cmd", StartCommand, Access::kOperator},
    {"GET", SB_V1 "/{session}/cmd", ListCommands, Access::kViewer},
    {"GET", SB_V1 "/{session}/cmd/{command}", GetCommand, Access::kViewer},
    {"GET", SB_V1 "/{session}/cmd/{command}/logs", StreamLogs, Access::kViewer},
    {"POST", SB_V1 "/{session}/{command}/kill", KillCommand, Access::kOperator},
    {"POST", SB_V1 "/{session}/fs/read", ReadFile, Access::kViewer},
    {"POST", SB_V1 "/{session}/fs/write", WriteFiles, Access::kOperator},
    {"POST", SB_V1 "/{session}/fs/mkdir", MakeDir, Access::kOperator},
    {"GET", SB_V1 "/snapshots", ListSnapshots, Access::kViewer},
    {"GET", SB_V1 "/snapshots/{snapshot}", GetSnapshot, Access::kViewer},
    {"DELETE", SB_V1 "/snapshots/{snapshot}", DeleteSnapshot, Access::kOperator},

    // What the Vercel CLI asks to find out where it is.
    {"GET", "/v2/user", GetUser, Access::kViewer},
    {"GET", "/v2/teams", ListTeams, Access::kViewer},
    {"GET", "/v2/teams/{team}", GetTeam, Access::kViewer},
    {"GET", "/v2/projects/{project}", GetProject, Access::kViewer},
    {"POST", "/v11/projects", CreateProject, Access::kOperator},

    // Each tool has a role of its own (mcp/tools.cc).
    {"POST", "/mcp", Mcp, Access::kViewer},
    {"POST", "/mcp/s/{name}", Mcp, Access::kViewer},

    {"POST", "/x/v1/keys", NativeCreateKey, Access::kAdmin},
    {"GET", "/x/v1/keys", NativeListKeys, Access::kAdmin},
    {"POST", "/x/v1/keys/{key}/rotate", NativeRotateKey, Access::kAdmin},
    {"DELETE", "/x/v1/keys/{key}", NativeRevokeKey, Access::kAdmin},
    {"GET", "/x/v1/logins/{code}", NativeGetLogin, Access::kOperator},
    {"POST", "/x/v1/logins/{code}/approve", NativeApproveLogin, Access::kOperator},
    {"POST", "/x/v1/logins/{code}/deny", NativeDenyLogin, Access::kOperator},

    {"GET", "/x/v1/info", NativeInfo, Access::kViewer},
    {"GET", "/x/v1/routes", NativeRoutes, Access::kViewer},
    {"GET", "/x/v1/images", NativeImages, Access::kViewer},
    {"GET", "/x/v1/usage", NativeUsage, Access::kViewer},
    {"GET", "/x/v1/sandboxes/{name}", NativeInspect, Access::kViewer},
    {"POST", "/x/v1/sandboxes/{name}/promote", NativePromote, Access::kOperator},
    {"POST", "/x/v1/sandboxes/{name}/fork", ForkSandbox, Access::kOperator},
    {"POST", "/x/v1/sandboxes/{name}/pause", NativePause, Access::kOperator},
    {"POST", "/x/v1/sandboxes/{name}/resume", NativeResume, Access::kOperator},
    {"POST", "/x/v1/snapshots/{snapshot}/verify", NativeVerifySnapshot, Access::kOperator},
    {"GET", "/x/v1/notices", NativeNotices, Access::kViewer},
    {"GET", "/x/v1/diff", NativeDiff, Access::kViewer},
    {"POST", "/x/v1/race", NativeRace, Access::kOperator},
    {"POST", "/x/v1/sandboxes/{name}/code", RunCode, Access::kOperator},
    {"GET", "/x/v1/sandboxes/{name}/contexts", ListContexts, Access::kViewer},
    {"POST", "/x/v1/sandboxes/{name}/contexts", CreateContext, Access::kOperator},
    {"DELETE", "/x/v1/sandboxes/{name}/contexts/{context}", DeleteContext, Access::kOperator},
    {"POST", "/x/v1/sandboxes/{name}/contexts/{context}/interrupt", InterruptContext, Access::kOperator},
    {"POST", "/x/v1/sandboxes/{name}/contexts/{context}/restart", RestartContext, Access::kOperator},
    {"GET", "/x/v1/terminal", ServeTerminal, Access::kOpen},  // a ticket opens it
    {"POST", "/x/v1/sessions/{session}/commands", NativeStartCommand, Access::kOperator},
    {"GET", "/x/v1/sessions/{session}/commands/{command}/output", NativeFollowOutput, Access::kViewer},
    {"GET", "/x/v1/sessions/{session}/commands/{command}/stdin", NativeGetInput, Access::kViewer},
    {"POST", "/x/v1/sessions/{session}/commands/{command}/stdin", NativeWriteInput, Access::kOperator},
    {"POST", "/x/v1/sessions/{session}/commands/{command}/resize", NativeResize, Access::kOperator},
    {"GET", "/x/v1/sessions/{session}/files/list", NativeListFiles, Access::kViewer},
    {"GET", "/x/v1/sessions/{session}/files/stat", NativeStatFile, Access::kViewer},
    {"GET", "/x/v1/sessions/{session}/files/content", NativeReadFile, Access::kViewer},
    {"PUT", "/x/v1/sessions/{session}/files/content", NativeWriteFile, Access::kOperator},
    {"POST", "/x/v1/sessions/{session}/files/attributes", NativeSetFileAttributes, Access::kOperator},
    {"POST", "/x/v1/sessions/{session}/files/rename", NativeRenameFile, Access::kOperator},
    {"POST", "/x/v1/sessions/{session}/files/remove", NativeRemoveFile, Access::kOperator},
    {"POST", "/x/v1/sessions/{session}/files/link", NativeMakeLink, Access::kOperator},
    {"POST", "/x/v1/sessions/{session}/files/mkdir", NativeMakeDirectory, Access::kOperator},
    {"GET", "/x/v1/sessions/{session}/denials", NativeDenials, Access::kViewer},
    {"GET", "/x/v1/sessions/{session}/network/log", NativeNetworkLog, Access::kViewer},
    {"GET", "/x/v1/sessions/{session}/network/suggest", NativeNetworkSuggest, Access::kViewer},
    {"POST", "/x/v1/sessions/{session}/network/test", NativeNetworkTest, Access::kViewer},
    {"POST", "/x/v1/sandboxes/{name}/routes/{port}/token", MakeRouteToken, Access::kOperator},
    {"DELETE", "/x/v1/sandboxes/{name}/routes/{port}/token", RemoveRouteToken, Access::kOperator},
    {"GET", "/x/v1/sessions/{session}/ports/{port}", ForwardPort, Access::kOperator},
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

std::optional<store::KeyRole> RoleOf(Access access) {
  switch (access) {
    case Access::kOpen:
      return std::nullopt;
    case Access::kViewer:
      return store::KeyRole::kViewer;
    case Access::kOperator:
      return store::KeyRole::kOperator;
    case Access::kAdmin:
      return store::KeyRole::kAdmin;
  }
  return store::KeyRole::kAdmin;
}

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
      out.push_back({std::string(route.method), std::move(pattern), RoleOf(route.access)});
    }
  }
  return out;
}

}  // namespace sandbar::api
