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
    if (!route.role) continue;
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

TEST_F(ApiFixture, EveryRouteRefusesKeysThatHaveEnded) {
  domain_.AddKey("revoked").life->Revoke();
  domain_.AddKey("expired").ends_at_ms = NowMs() - 1;
  const int64_t now = NowMs();
  auto jwt = [now](const std::string& key) {
    return MintJwt(kTestKey, {"t", "p", now + 600'000, key, sandbox::KeyRole::kAdmin}, now);
  };
  const std::vector<std::string> bearers = {"revoked", "expired", jwt("key_revoked"), jwt("key_expired"),
                                            jwt("key_of_nobody")};
  Client client = Connect();
  for (const RouteInfo& route : Api::Routes()) {
    if (!route.role) continue;
    for (const std::string& bearer : bearers) {
      client.Request(route.method, Concrete(route.pattern), "", Bearer(bearer));
      Answer answer = client.ReadAnswer();
      ASSERT_EQ(answer.status, 401) << bearer << ": " << route.method << " " << route.pattern;
    }
  }
  EXPECT_EQ(OnLoop([&] { return domain_.calls; }), 0);
}

// Each role gets through where the table says so, and nowhere else; so does a JWT of each.
TEST_F(ApiFixture, EveryRouteHoldsItsRole) {
  using sandbox::KeyRole;
  domain_.Exit(0);
  domain_.EndLog();
  const int64_t now = NowMs();
  size_t refused = 0;
  const std::vector<KeyRole> roles = {KeyRole::kViewer, KeyRole::kOperator, KeyRole::kAdmin};
  for (KeyRole role : roles) domain_.AddKey(std::string(store::KeyRoleName(role)), role);
  for (KeyRole role : roles) {
    const std::string name(store::KeyRoleName(role));
    // The role of the key counts, and so does that of the JWT.
    const std::string jwt =
        MintJwt(kTestKey, {"team_sandbar", "prj_sandbar", now + 600'000, "key_" + name, KeyRole::kAdmin}, now);
    const std::string less = MintJwt(kTestKey, {"team_sandbar", "prj_sandbar", now + 600'000, "key_admin", role}, now);
    for (const std::string& bearer : {name, jwt, less}) {
      for (const RouteInfo& route : Api::Routes()) {
        if (!route.role) continue;
        Client client = Connect();
        client.Request(route.method, Concrete(route.pattern), "", Bearer(bearer));
        Answer answer = client.ReadAnswer();
        const std::string what = name + ": " + route.method + " " + route.pattern;
        if (role >= *route.role) {
          EXPECT_NE(answer.status, 401) << what;
          EXPECT_NE(answer.status, 403) << what;
          EXPECT_NE(answer.status, 0) << what;
          continue;
        }
        ++refused;
        EXPECT_EQ(answer.status, 403) << what;
        EXPECT_TRUE(answer.Message().ends_with("; this call needs " + std::string(store::KeyRoleName(*route.role))))
            << answer.body;
      }
    }
  }
  EXPECT_GT(refused, 150U);
}

TEST_F(ApiFixture, RolesFollowTheEffectNotTheMethod) {
  domain_.AddKey("watcher", sandbox::KeyRole::kViewer);
  const std::string viewer = Bearer("watcher");
  EXPECT_EQ(Ask("GET", "/v2/sandboxes/demo", "", viewer).status, 200);
  Answer resume = Ask("GET", "/v2/sandboxes/demo?resume=true", "", viewer);
  EXPECT_EQ(resume.status, 403);
  EXPECT_EQ(resume.Code(), "forbidden");
  EXPECT_EQ(resume.Message(), "the key watcher may only read; this call needs operator");
  OnLoop([&] { domain_.pieces = {"hi"}; });
  EXPECT_EQ(Ask("POST", "/v2/sandboxes/sessions/sbx_1/fs/read", R"({"path":"a"})", viewer).body, "hi");
  EXPECT_EQ(Ask("POST", "/v2/sandboxes", "{}", viewer).status, 403);
  EXPECT_EQ(Ask("GET", "/x/v1/sessions/sbx_1/ports/80", "", viewer).status, 403);
  // What it mints can do no more.
  const std::string script = Ask("GET", "/sdk/env.sh", "", viewer).body;
  const size_t at = script.find("VERCEL_OIDC_TOKEN='") + 19;
  const std::string jwt = Bearer(script.substr(at, script.find('\'', at) - at));
  EXPECT_EQ(Ask("GET", "/v2/sandboxes", "", jwt).status, 200);
  EXPECT_EQ(Ask("POST", "/v2/sandboxes", "{}", jwt).status, 403);
}

TEST_F(ApiFixture, TheCallerIsInEveryCall) {
  EXPECT_EQ(Ask("GET", "/v2/sandboxes").status, 200);
  OnLoop([&] {
    EXPECT_EQ(domain_.scope.caller.key_id, "key_good");
    EXPECT_EQ(domain_.scope.caller.role, sandbox::KeyRole::kAdmin);
    EXPECT_FALSE(domain_.scope.caller.derived);
  });
  boost::json::object info = Ask("GET", "/x/v1/info").Json();
  EXPECT_EQ(info.at("key").at("id"), "key_good");
  EXPECT_EQ(info.at("key").at("role"), "admin");
  const std::string script = Ask("GET", "/sdk/env.sh").body;
  const size_t at = script.find("VERCEL_OIDC_TOKEN='") + 19;
  EXPECT_EQ(Ask("GET", "/v2/sandboxes", "", Bearer(script.substr(at, script.find('\'', at) - at))).status, 200);
  OnLoop([&] {
    EXPECT_EQ(domain_.scope.caller.key_id, "key_good");
    EXPECT_EQ(domain_.scope.caller.role, sandbox::KeyRole::kOperator) << "programs need no admin";
    EXPECT_TRUE(domain_.scope.caller.derived);
    EXPECT_TRUE(domain_.scope.caller.expires_at_ms.has_value());
  });
}

// Releases before keys made JWTs that name no key: they belong to the key that the server made first.
TEST_F(ApiFixture, AJwtWithoutAKeyEndsWithTheOldestKey) {
  const int64_t now = NowMs();
  const std::string former = Bearer(MintJwt(kTestKey, {"team_a", "prj_a", now + 600'000}, now));
  EXPECT_EQ(Ask("POST", "/v3/sandboxes", R"({"projectId":"prj_a"})", former).status, 200);
  OnLoop([&] {
    EXPECT_EQ(domain_.scope.caller.key_id, "key_good");
    EXPECT_EQ(domain_.scope.caller.role, sandbox::KeyRole::kOperator);
  });
  EXPECT_EQ(Ask("GET", "/x/v1/keys", "", former).status, 403) << "no release that made it had keys";
  OnLoop([&] { domain_.keys.at("good").life->Revoke(); });
  EXPECT_EQ(Ask("GET", "/v2/sandboxes", "", former).status, 401);
}

TEST_F(ApiFixture, KeysAreMadeListedAndRevoked) {
  Answer made = Ask("POST", "/x/v1/keys", R"({"name":"ci","role":"viewer","project":"*","expiresIn":60000})");
  EXPECT_EQ(made.status, 201) << made.body;
  EXPECT_EQ(made.Json().at("secret"), "sbk_the-secret");
  EXPECT_EQ(made.Json().at("key").at("role"), "viewer");
  OnLoop([&] {
    EXPECT_EQ(domain_.key_spec->project, "*");
    EXPECT_EQ(domain_.key_spec->expires_in_ms, 60'000);
  });
  EXPECT_EQ(Ask("POST", "/x/v1/keys", R"({"name":"ci"})").Json().at("key").at("role"), "operator");
  const std::string list = Ask("GET", "/x/v1/keys").body;
  EXPECT_TRUE(list.contains("key_1")) << list;
  EXPECT_FALSE(list.contains("hash-of-it") || list.contains("sbk_")) << list;
  Answer rotated = Ask("POST", "/x/v1/keys/key_1/rotate");
  EXPECT_EQ(rotated.status, 201) << rotated.body;
  EXPECT_EQ(rotated.Json().at("secret"), "sbk_another-secret");
  EXPECT_EQ(Ask("POST", "/x/v1/keys/key_2/rotate").status, 404);
  EXPECT_EQ(Ask("DELETE", "/x/v1/keys/key_1").Json().at("key").at("state"), "revoked");
  EXPECT_EQ(Ask("DELETE", "/x/v1/keys/key_1").status, 200) << "again";
  EXPECT_EQ(Ask("DELETE", "/x/v1/keys/key_2").status, 404);
  EXPECT_EQ(Ask("GET", "/x/v1/keys").Json().at("keys").as_array().size(), 0U);
  EXPECT_EQ(Ask("GET", "/x/v1/keys?all=true").Json().at("keys").as_array().size(), 1U);
  const std::vector<std::pair<const char*, const char*>> wrong = {{R"({})", "`name`"},
                                                                  {R"({"name":""})", "`name`"},
                                                                  {R"({"name":"a\u001bb"})", "`name`"},
                                                                  {R"({"name":"a","role":"root"})", "`role`"},
                                                                  {R"({"name":"a","project":"a b"})", "`project`"},
                                                                  {R"({"name":"a","expiresIn":0})", "`expiresIn`"},
                                                                  {R"({"name":"a","expiresIn":"1h"})", "`expiresIn`"},
                                                                  {R"({"name":"a","expires":1})", "expires"}};
  for (const auto& [body, field] : wrong) {
    Answer answer = Ask("POST", "/x/v1/keys", body);
    EXPECT_EQ(answer.status, 400) << body;
    EXPECT_TRUE(answer.Message().contains(field)) << answer.body;
  }
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
