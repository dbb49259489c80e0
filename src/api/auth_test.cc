#include "api/auth.h"

#include "support/api/api_fixture.h"

namespace sandbar::api {
namespace {

constexpr int64_t kNow = 1'760'000'000'000;

std::string Payload(const std::string& extra, int64_t exp = kNow / 1000 + 600) {
  return R"({"aud":"sandbar","owner_id":"team_a","project_id":"prj_a","exp":)" + std::to_string(exp) + extra + "}";
}
constexpr std::string_view kHeader = R"({"alg":"HS256","typ":"JWT"})";

bool Accepted(std::string_view token, int64_t now = kNow) {
  return VerifyJwt(kTestKey, token, now).has_value();
}

TEST(Jwt, MintedTokenVerifies) {
  JwtClaims claims{"team_a", "prj_a", kNow + 3'600'000};
  auto got = VerifyJwt(kTestKey, MintJwt(kTestKey, claims, kNow), kNow);
  ASSERT_TRUE(got.has_value());
  EXPECT_EQ(got->team, "team_a");
  EXPECT_EQ(got->project, "prj_a");
  EXPECT_EQ(got->expires_at_ms, kNow + 3'600'000);
  EXPECT_TRUE(Accepted(Forge(kHeader, Payload(""))));  // the forgery below fails for its content, not its form
}

TEST(Jwt, ExpiryHasOneMinuteOfLeeway) {
  std::string token = MintJwt(kTestKey, {"team_a", "prj_a", kNow}, kNow - 1000);
  EXPECT_TRUE(Accepted(token, kNow + 59'000));
  EXPECT_FALSE(Accepted(token, kNow + 60'000));
}

TEST(Jwt, OnlyOurAlgorithmTypeAndAudience) {
  EXPECT_FALSE(Accepted(Forge(R"({"alg":"none","typ":"JWT"})", Payload(""))));
  EXPECT_FALSE(Accepted(Base64Url(R"({"alg":"none","typ":"JWT"})") + "." + Base64Url(Payload("")) + "."));
  EXPECT_FALSE(Accepted(Forge(R"({"alg":"HS512","typ":"JWT"})", Payload(""))));
  EXPECT_FALSE(Accepted(Forge(R"({"alg":"HS256"})", Payload(""))));
  EXPECT_FALSE(Accepted(Forge(R"({"alg":"HS256","typ":"at+jwt"})", Payload(""))));
  EXPECT_FALSE(Accepted(Forge(R"({"alg":"HS256","typ":"JWT","crit":["x"]})", Payload(""))));
  EXPECT_FALSE(Accepted(Forge(kHeader, R"({"aud":"other","owner_id":"t","project_id":"p","exp":1860000000})")));
  EXPECT_FALSE(Accepted(Forge(kHeader, R"({"owner_id":"t","project_id":"p","exp":1860000000})")));
}

TEST(Jwt, ClaimsAreRequiredAndPlausible) {
  EXPECT_FALSE(Accepted(Forge(kHeader, R"({"aud":"sandbar","owner_id":"t","project_id":"p"})")));
  EXPECT_FALSE(Accepted(Forge(kHeader, R"({"aud":"sandbar","owner_id":"t","project_id":"p","exp":"1860000000"})")));
  EXPECT_FALSE(Accepted(Forge(kHeader, R"({"aud":"sandbar","owner_id":"t","project_id":"p","exp":1e300})")));
  EXPECT_FALSE(Accepted(Forge(kHeader, R"({"aud":"sandbar","owner_id":"*","project_id":"p","exp":1860000000})")));
  EXPECT_FALSE(Accepted(Forge(kHeader, R"({"aud":"sandbar","owner_id":"t","exp":1860000000})")));
  EXPECT_FALSE(Accepted(Forge(kHeader, "[]")));
}

TEST(Jwt, SignatureCoversEverything) {
  std::string token = Forge(kHeader, Payload(""));
  for (size_t i = 0; i < token.size(); ++i) {
    std::string changed = token;
    changed[i] = changed[i] == 'A' ? 'B' : 'A';
    EXPECT_FALSE(Accepted(changed)) << i;
  }
  EXPECT_FALSE(Accepted(Forge(kHeader, Payload(""), std::string(32, 'x'))));
  EXPECT_FALSE(Accepted(token + "="));
  EXPECT_FALSE(Accepted(token.substr(0, token.rfind('.') + 1)));
  EXPECT_FALSE(VerifyJwt("", Forge(kHeader, Payload(""), ""), kNow).has_value());
}

http::HttpRequest WithAuth(std::vector<std::string> values) {
  http::HttpRequest request;
  for (std::string& v : values) request.headers.push_back({"Authorization", std::move(v)});
  return request;
}

TEST(Bearer, ReadsExactlyOneCredential) {
  EXPECT_EQ(BearerOf(WithAuth({"Bearer abc"})).value(), "abc");
  EXPECT_EQ(BearerOf(WithAuth({"bearer abc"})).value(), "abc");
  for (const auto& bad : std::vector<std::vector<std::string>>{
           {}, {""}, {"Bearer"}, {"Bearer "}, {"Bearer a b"}, {"Basic abc"}, {"Bearer a", "Bearer a"}, {"abc"}}) {
    auto got = BearerOf(WithAuth(bad));
    ASSERT_FALSE(got.has_value());
    EXPECT_EQ(got.error().code, Code::kUnauthenticated);
  }
}

TEST(Jwt, NamesItsKeyAndRole) {
  JwtClaims claims{"team_a", "prj_a", kNow + 3'600'000, "key_1", sandbox::KeyRole::kViewer};
  auto got = VerifyJwt(kTestKey, MintJwt(kTestKey, claims, kNow), kNow);
  ASSERT_TRUE(got.has_value());
  EXPECT_EQ(got->key, "key_1");
  EXPECT_EQ(got->role, sandbox::KeyRole::kViewer);
  // One of the release before.
  auto former = VerifyJwt(kTestKey, MintJwt(kTestKey, {"team_a", "prj_a", kNow + 3'600'000}, kNow), kNow);
  ASSERT_TRUE(former.has_value());
  EXPECT_EQ(former->key, "");
  EXPECT_EQ(former->role, sandbox::KeyRole::kOperator);
  // A claim alone, or of another form, is nothing that we have made.
  for (const char* more : {R"(,"key":"key_1")", R"(,"role":"admin")", R"(,"key":"key_1","role":"root")",
                           R"(,"key":7,"role":"viewer")", R"(,"key":"","role":"viewer")"})
    EXPECT_FALSE(Accepted(Forge(kHeader, Payload(more)))) << more;
  EXPECT_TRUE(Accepted(Forge(kHeader, Payload(R"(,"key":"key_1","role":"viewer")"))));
}

TEST(ScopeOf, AnyTokenTakesWhatTheRequestNames) {
  sandbox::Principal any;
  any.team = any.project = "*";
  auto defaults = ResolveScope(any, {}).value();
  EXPECT_EQ(defaults.team, "team_sandbar");
  EXPECT_EQ(defaults.project, "prj_sandbar");
  EXPECT_TRUE(defaults.any_team && defaults.any_project);
  auto named = ResolveScope(any, {"team_x", "prj_x"}).value();
  EXPECT_EQ(named.team, "team_x");
  EXPECT_EQ(named.project, "prj_x");
  EXPECT_EQ(ResolveScope(any, {"", std::string(kCliDefaultProject)}).value().project, "prj_sandbar");
  EXPECT_EQ(ResolveScope(any, {"a/b", ""}).error().code, Code::kBadRequest);
  EXPECT_EQ(ResolveScope(any, {"*", ""}).error().code, Code::kBadRequest);
}

TEST(ScopeOf, BoundTokenRefusesOthers) {
  sandbox::Principal bound;
  bound.team = "team_a";
  bound.project = "prj_a";
  auto scope = ResolveScope(bound, {}).value();
  EXPECT_EQ(scope.team, "team_a");
  EXPECT_EQ(scope.project, "prj_a");
  EXPECT_FALSE(scope.any_team || scope.any_project);
  EXPECT_TRUE(ResolveScope(bound, {"team_a", "prj_a"}).has_value());
  EXPECT_EQ(ResolveScope(bound, {"team_b", "prj_a"}).error().code, Code::kForbidden);
  EXPECT_EQ(ResolveScope(bound, {"team_a", "prj_b"}).error().code, Code::kForbidden);
}

}  // namespace
}  // namespace sandbar::api
