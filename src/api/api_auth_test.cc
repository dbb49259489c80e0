// The auth matrix, generated from the route table: a new route is in it without anyone thinking of it. And scopes.
#include "support/api/api_fixture.h"

namespace sandbar::api {
namespace {

std::string Concrete(std::string pattern) {
  for (size_t at = pattern.find('{'); at != std::string::npos; at = pattern.find('{'))
    pattern.replace(at, pattern.find('}') - at + 1, "x1");
  return pattern;
}

std::string Bearer(const std::string& token) {
  return "Authorization: Bearer " + token + "\r\n";
}

TEST_F(ApiFixture, EveryRouteRefusesEveryBadToken) {
  int64_t now = NowMs();
  std::string live =
      R"({"aud":"sandbar","owner_id":"t","project_id":"p","exp":)" + std::to_string(now / 1000 + 600) + "}";
  std::string none = R"({"alg":"none","typ":"JWT"})";
  const std::vector<std::pair<std::string, std::string>> credentials = {
      {"none", "Authorization-X: none\r\n"},
      {"wrong", Bearer("wrong")},
      {"malformed scheme", "Authorization: good\r\n"},
      {"basic", "Authorization: Basic Z29vZA==\r\n"},
      {"empty", "Authorization: Bearer \r\n"},
      {"two", Bearer("good") + Bearer("good")},
      {"malformed jwt", Bearer("a.b.c")},
      {"expired jwt", Bearer(MintJwt(kTestKey, {"t", "p", now - 120'000}, now - 180'000))},
      {"alg none", Bearer(Base64Url(none) + "." + Base64Url(live) + ".")},
      {"alg none, signed", Bearer(Forge(none, live))},
      {"foreign key", Bearer(MintJwt(std::string(32, 'x'), {"t", "p", now + 600'000}, now))},
      {"in the query", "Authorization-X: none\r\nCookie: token=good\r\n"},
  };
  size_t refused = 0;
  Client client = Connect();
  for (const RouteInfo& route : Api::Routes()) {
    if (!route.needs_token) continue;
    for (const auto& [name, header] : credentials) {
      for (const char* prefix : {"", "/api"}) {
        client.Request(route.method, prefix + Concrete(route.pattern) + "?token=good", "", header);
        Answer answer = client.ReadAnswer();
        ASSERT_EQ(answer.status, 401) << name << ": " << route.method << " " << route.pattern;
        EXPECT_EQ(answer.Code(), "unauthorized");
        EXPECT_TRUE(answer.Get("www-authenticate").starts_with("Bearer"));
        ++refused;
      }
    }
  }
  EXPECT_EQ(OnLoop([&] { return domain_.calls; }), 0);
  EXPECT_GT(refused, 1500U);
}

TEST_F(ApiFixture, EveryRouteAcceptsAGoodToken) {
  // Otherwise the matrix above could pass with a server that refuses everything.
  domain_.Exit(0);
  domain_.EndLog();
  for (const RouteInfo& route : Api::Routes()) {
    Client client = Connect();
    client.Request(route.method, Concrete(route.pattern));
    Answer answer = client.ReadAnswer(route.method == "HEAD");
    EXPECT_NE(answer.status, 401) << route.method << " " << route.pattern;
    EXPECT_NE(answer.status, 403) << route.method << " " << route.pattern;
    EXPECT_NE(answer.status, 0) << route.method << " " << route.pattern;
  }
}

TEST_F(ApiFixture, JwtIsBoundToItsProject) {
  int64_t now = NowMs();
  std::string bearer = Bearer(MintJwt(kTestKey, {"team_a", "prj_a", now + 600'000}, now));
  EXPECT_EQ(Ask("GET", "/v2/sandboxes?teamId=team_a&project=prj_a", "", bearer).status, 200);
  OnLoop([&] {
    EXPECT_EQ(domain_.scope.team, "team_a");
    EXPECT_EQ(domain_.scope.project, "prj_a");
    EXPECT_FALSE(domain_.scope.any_team || domain_.scope.any_project);
  });
  EXPECT_EQ(Ask("GET", "/v2/sandboxes", "", bearer).status, 200);
  Answer team = Ask("GET", "/v2/sandboxes?teamId=team_b", "", bearer);
  EXPECT_EQ(team.status, 403);
  EXPECT_EQ(team.Code(), "forbidden");
  EXPECT_EQ(Ask("GET", "/v2/sandboxes?project=prj_b", "", bearer).status, 403);
  EXPECT_EQ(Ask("GET", "/v2/sandboxes/x?projectId=prj_b", "", bearer).status, 403);
  EXPECT_EQ(Ask("POST", "/v3/sandboxes", R"({"projectId":"prj_b"})", bearer).status, 403);
  EXPECT_EQ(Ask("GET", "/v2/projects/prj_b", "", bearer).status, 404);
  EXPECT_EQ(Ask("GET", "/v2/teams/team_b", "", bearer).status, 404);
  EXPECT_EQ(Ask("POST", "/v11/projects", R"({"name":"prj_b"})", bearer).status, 403);
  EXPECT_EQ(Ask("GET", "/sdk/env.sh?projectId=prj_b", "", bearer).status, 403);
}

}  // namespace
}  // namespace sandbar::api
