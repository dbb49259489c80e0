#include "api/routes.h"

#include <gtest/gtest.h>

#include <set>

#include "api/handlers.h"

namespace sandbar::api {
namespace {

Match At(std::string_view method, std::string_view path) {
  return MatchRoute(RouteTable(), method, path);
}

TEST(Routes, ApiPrefixIsOptional) {
  for (const char* path :
       {"/v2/sandboxes/demo", "/api/v2/sandboxes/demo", "/v3/sandboxes/demo", "/v4/sandboxes/demo"}) {
    Match match = At("GET", path);
    ASSERT_NE(match.route, nullptr) << path;
    EXPECT_EQ(match.route->handler, &GetSandbox);
    EXPECT_EQ(match.params.at("name"), "demo");
  }
  EXPECT_EQ(At("GET", "/api/api/v2/sandboxes/demo").route, nullptr);
  EXPECT_EQ(At("POST", "/api/v3/sandboxes").version, "v3");
}

TEST(Routes, ReservedWordsAreNoNames) {
  EXPECT_EQ(At("GET", "/v2/sandboxes/sessions").route->handler, &ListSessions);
  EXPECT_EQ(At("GET", "/v2/sandboxes/snapshots").route->handler, &ListSnapshots);
  EXPECT_EQ(At("GET", "/v2/sandboxes/drives").route->handler, &ListDrives);
  EXPECT_EQ(At("GET", "/v1/sandboxes/snapshots").route->handler, &ListSnapshots);
  for (const char* path : {"/v2/sandboxes/sessions", "/v2/sandboxes/snapshots", "/v2/sandboxes/drives"}) {
    Match match = At("DELETE", path);
    EXPECT_EQ(match.route, nullptr);
    EXPECT_EQ(match.allowed, std::vector<std::string_view>{"GET"});
  }
}

TEST(Routes, OldKillPath) {
  Match match = At("POST", "/api/v1/sandboxes/sbx_1/cmd_2/kill");
  ASSERT_NE(match.route, nullptr);
  EXPECT_EQ(match.route->handler, &KillCommand);
  EXPECT_EQ(match.params.at("session"), "sbx_1");
  EXPECT_EQ(match.params.at("command"), "cmd_2");
}

TEST(Routes, SegmentsAreDecodedAfterSplitting) {
  EXPECT_EQ(At("GET", "/v2/sandboxes/a%2Fb").params.at("name"), "a/b");
  for (const char* path : {"/v2/sandboxes/", "/v2/sandboxes//", "/v2//sandboxes", "/v2/sandboxes/%zz", "/", "", "/api",
                           "/v5/sandboxes", "/v2/sandboxes/a/b/c", "/V2/sandboxes", "/v2|v3|v4/sandboxes"}) {
    Match match = At("GET", path);
    EXPECT_EQ(match.route, nullptr) << path;
    EXPECT_TRUE(match.allowed.empty()) << path;
  }
}

TEST(Routes, EveryExpandedRowIsReachableAndUnique) {
  std::set<std::string> seen;
  for (const RouteInfo& row : ExpandRoutes(RouteTable())) {
    EXPECT_TRUE(seen.insert(row.method + " " + row.pattern).second) << row.pattern;
    EXPECT_FALSE(row.pattern.contains('|'));
    std::string path = row.pattern;
    for (size_t at = path.find('{'); at != std::string::npos; at = path.find('{'))
      path.replace(at, path.find('}') - at + 1, "x1");
    Match match = At(row.method, path);
    ASSERT_NE(match.route, nullptr) << path;
    EXPECT_EQ(RoleOf(match.route->access), row.role);
  }
  EXPECT_GT(seen.size(), 80U);
}

TEST(Routes, OnlyTheseAreOpen) {
  std::set<std::string> open;
  for (const RouteInfo& row : ExpandRoutes(RouteTable())) {
    if (!row.role) open.insert(row.method + " " + row.pattern);
  }
  EXPECT_EQ(open, (std::set<std::string>{"GET /health", "HEAD /health", "GET /sdk/register.mjs", "GET /sdk/sandbar.py",
                                         "GET /llms.txt", "GET /openapi.json", "GET /.well-known/jwks",
                                         "GET /.well-known/openid-configuration", "POST /x/v1/oauth/device",
                                         "POST /x/v1/oauth/token", "POST /x/v1/oauth/revoke",
                                         "POST /x/v1/oauth/introspect", "GET /login", "GET /x/v1/terminal"}));
}

}  // namespace
}  // namespace sandbar::api
