#include "egress/intercept.h"

#include "support/egress/intercept_fixture.h"

namespace sandbar::egress::testing {
namespace {

constexpr std::string_view kSecret = "Bearer canary-4711";

std::string Field(const Message& m, std::string_view name) {
  return std::string(m.head.Get(name));
}

Matcher Exact(std::string text) {
  return {Matcher::Kind::kExact, std::move(text)};
}
Matcher Starts(std::string text) {
  return {Matcher::Kind::kStartsWith, std::move(text)};
}
Matcher Regex(std::string text) {
  return {Matcher::Kind::kRegex, std::move(text)};
}

Rule Say(std::string body, std::optional<RequestMatch> match = std::nullopt) {
  return {std::move(match), RespondAction{.body = std::move(body), .content_type = "text/plain"}};
}

TEST_F(InterceptTest, InjectsAHeaderInPlaceOfTheGuests) {
  Upstream up(&certificate_);
  Start({{"api.test", {Inject({{"Authorization", std::string(kSecret)}})}}});
  Peer guest = Tls(up.port());
  std::string port = ":" + std::to_string(up.port());
  Message answer = guest.Ask(Get("API.test." + port, "/v1?q=1",
                                 "authorization: guess\r\nAUTHORIZATION: again\r\nX-Own: kept\r\nX-Hop: gone\r\n"
                                 "Connection: x-hop\r\nProxy-Authorization: p\r\nVercel-Forwarded-Host: forged\r\n"
                                 "vercel-sandbox-oidc-token: forged\r\n"));
  EXPECT_EQ(answer.head.status, 200);
  EXPECT_EQ(answer.body, "hello");
  auto seen = up.seen();
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(Field(seen[0], "host"), "api.test" + port);
  EXPECT_EQ(seen[0].head.target, "/v1?q=1");
  EXPECT_EQ(std::ranges::count_if(seen[0].head.fields,
                                  [](auto& f) { return wire::FindField({f}, "authorization") == kSecret; }),
            1);
  EXPECT_EQ(
      std::ranges::count_if(seen[0].head.fields, [](auto& f) { return f.value == "guess" || f.value == "again"; }), 0);
  EXPECT_EQ(Field(seen[0], "x-own"), "kept");
  for (const char* stripped : {"x-hop", "proxy-authorization", "vercel-forwarded-host", "vercel-sandbox-oidc-token"})
    EXPECT_FALSE(wire::HasField(seen[0].head.fields, stripped)) << stripped;
  EXPECT_EQ(OnLoop([this] { return hosts_; }), std::vector<std::string>{"api.test"});
}

TEST_F(InterceptTest, FieldsOfTheConnectionStayBehindInAnswersToo) {
  Upstream up(&certificate_, [](Peer& peer, const Message&) {
    return peer.Send(
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nProxy-Authenticate: Basic\r\nproxy-status: x\r\nX-Hop: 1\r\n"
        "Connection: x-hop\r\nKeep-Alive: timeout=5\r\nX-Own: kept\r\n\r\nhello");
  });
  Start({{"api.test", {Inject({{"x-key", "canary-4711"}})}}});
  Message answer = Tls(up.port()).Ask(Get("api.test"));
  EXPECT_EQ(answer.body, "hello");
  EXPECT_EQ(Field(answer, "x-own"), "kept");
  for (const char* stripped : {"proxy-authenticate", "proxy-status", "x-hop", "keep-alive"})
    EXPECT_FALSE(wire::HasField(answer.head.fields, stripped)) << stripped;
}

TEST_F(InterceptTest, OtherSpellingsOfAnInjectedHeaderAreDropped) {
  Upstream up(&certificate_);
  Start({{"api.test", {Inject({{"X-Api-Key", "canary-4711"}})}}});
  Tls(up.port()).Ask(
      Get("api.test", "/", "X_API_KEY: guess\r\nx_api-key: guess\r\nVercel_Forwarded_Host: forged\r\nX_Own: kept\r\n"));
  auto seen = up.seen();
  ASSERT_EQ(seen.size(), 1u);
  for (const auto& f : seen[0].head.fields) EXPECT_TRUE(f.value != "guess" && f.value != "forged") << f.name;
  EXPECT_EQ(Field(seen[0], "x-api-key"), "canary-4711");
  EXPECT_EQ(Field(seen[0], "x_own"), "kept");
}

TEST_F(InterceptTest, ConnectionIsKeptOnBothSides) {
  Upstream up(&certificate_);
  Start({{"api.test", {Inject({{"x-key", "canary"}})}}});
  Peer guest = Tls(up.port());
  for (int i = 0; i < 5; ++i) EXPECT_EQ(guest.Ask(Get("api.test")).body, "hello");
  // Two at once.
  EXPECT_EQ(guest.Ask(Get("api.test") + Get("api.test")).head.status, 200);
  EXPECT_EQ(guest.Answer().head.status, 200);
  EXPECT_EQ(up.seen().size(), 7u);
  EXPECT_EQ(up.accepted(), 1);
}

TEST_F(InterceptTest, ReflectedSecretIsRedacted) {
  Upstream up(&certificate_, [](Peer& peer, const Message& request) {
    std::string value = Field(request, "authorization");
    return peer.Send("HTTP/1.1 302 Found\r\nX-Echo: <" + value + "> and " + value +
                     "\r\nLocation: /?t=" + "Bearer%20canary-4711&u=canary-4711\r\nContent-Length: 0\r\n\r\n");
  });
  Start({{"api.test", {Inject({{"authorization", std::string(kSecret)}})}}});
  Message answer = Tls(up.port()).Ask(Get("api.test"));
  EXPECT_EQ(answer.head.status, 302);
  EXPECT_EQ(Field(answer, "x-echo"), "<<redacted>> and <redacted>");
  EXPECT_EQ(Field(answer, "location"), "/?t=<redacted>&u=<redacted>");
}

TEST_F(InterceptTest, HostMustBeTheNameOfTheHandshake) {
  Upstream up(&certificate_);
  Start({{"*.api.test", {Inject({{"x-key", "canary"}})}}, {"api.test", {}}});
  Message answer = Tls(up.port(), "a.api.test").Ask(Get("b.api.test"));
  EXPECT_EQ(answer.head.status, 421);
  EXPECT_TRUE(answer.body.contains("misdirected_request")) << answer.body;
  EXPECT_EQ(Tls(up.port(), "a.api.test").Ask(Get("a.api.test:1")).head.status, 421);
  EXPECT_EQ(Tls(up.port(), "a.api.test").Ask(Get("127.0.0.1")).head.status, 421);
  EXPECT_EQ(up.accepted(), 0);
  EXPECT_EQ(Tls(up.port(), "a.api.test").Ask(Get("A.API.test")).head.status, 200);
}

TEST_F(InterceptTest, EachPlainRequestIsDecidedByItsHost) {
  Upstream up(nullptr);
  Start({{"good.test", {}}, {"fine.test", {}}});
  Peer guest = Plain(up.port());
  EXPECT_EQ(guest.Ask(Get("good.test")).body, "hello");
  Message denied = guest.Ask(Get("evil.test", "/steal"));
  EXPECT_EQ(denied.head.status, 403);
  for (const char* part :
       {R"("code":"egress_denied")", R"("host":"evil.test")", R"("rule":"no rule allows it")", "\"hint\":"})
    EXPECT_TRUE(denied.body.contains(part)) << denied.body;
  EXPECT_EQ(guest.Ask(Get("fine.test")).body, "hello");
  auto seen = up.seen();
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(up.accepted(), 2) << "an upstream connection serves one host";
  auto denials = Denials();
  ASSERT_EQ(denials.size(), 1u);
  EXPECT_EQ(denials[0].kind, "http");
  EXPECT_EQ(denials[0].target, "evil.test:" + std::to_string(up.port()));
  EXPECT_EQ(denials[0].host, "evil.test");
  EXPECT_EQ(denials[0].port, up.port());
}

TEST_F(InterceptTest, HostThatWasCutMeanwhileIsNotServed) {
  Upstream up(nullptr);
  Start({{"*", {}}});
  Peer guest = Plain(up.port());
  EXPECT_EQ(guest.Ask(Get("good.test")).body, "hello");
  guest.Send(Get("cut.test"));
  EXPECT_EQ(guest.ReadAll(), "");
  EXPECT_EQ(up.seen().size(), 1u);
}

TEST_F(InterceptTest, AddressesAsHost) {
  Upstream up(nullptr);
  Start({{"*", {}}});
  for (const char* host : {"127.0.0.1", "2130706433", "0x7f.1", "0177.0.0.1", "127.1", "[::ffff:127.0.0.1]", "[::1]"}) {
    Message answer = Plain(up.port()).Ask(Get(host));
    EXPECT_EQ(answer.head.status, 403) << host;
    EXPECT_TRUE(answer.body.contains("egress_denied")) << host;
  }
  EXPECT_EQ(up.accepted(), 0);
  OnLoop([this] {
    policy_ = *Compile({.mode = EgressMode::kCustom, .allow_cidrs = {"127.0.0.1/32"}});
    return 0;
  });
  EXPECT_EQ(Plain(up.port()).Ask(Get("127.0.0.1")).head.status, 200);
}

TEST_F(InterceptTest, ReboundNameLeadsNowhere) {
  Upstream up(nullptr);
  Start({{"rebound.test", {}}});
  Message answer = Plain(up.port()).Ask(Get("rebound.test"));
  EXPECT_EQ(answer.head.status, 403);
  EXPECT_TRUE(answer.body.contains("egress_denied")) << answer.body;
  EXPECT_EQ(up.accepted(), 0);
  EXPECT_EQ(Denials().size(), 1u);
}

TEST_F(InterceptTest, SecretIsNeverSentInClear) {
  Upstream up(nullptr);
  Start({{"api.test", {Inject({{"x-key", "canary"}})}}});
  Message answer = Plain(up.port()).Ask(Get("api.test"));
  EXPECT_EQ(answer.head.status, 403);
  EXPECT_FALSE(answer.body.contains("canary"));
  EXPECT_EQ(up.accepted(), 0);
  EXPECT_TRUE(OnLoop([this] { return hosts_; }).empty()) << "not let through";
}

TEST_F(InterceptTest, UpstreamWithAWrongCertificateIsRefused) {
  http::TestCertificate other("DNS:other.test");
  Upstream wrong_name(&other);
  http::TestCertificate unknown("DNS:api.test");
  Upstream unknown_ca(&unknown);
  Upstream no_tls(nullptr);
  options_.upstream_ca_file = other.cert();
  Start({{"api.test", {Inject({{"x-key", "canary"}})}}});
  for (Upstream* up : {&wrong_name, &unknown_ca, &no_tls}) {
    Message answer = Tls(up->port()).Ask(Get("api.test"));
    EXPECT_EQ(answer.head.status, 502);
    EXPECT_TRUE(answer.body.contains("upstream_tls_failed")) << answer.body;
    EXPECT_FALSE(answer.body.contains("canary"));
    EXPECT_TRUE(up->seen().empty());
  }
}

TEST_F(InterceptTest, UnreachableUpstreamIsSaid) {
  Start({{"api.test", {Inject({{"x-key", "canary"}})}}});
  Fd bound(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_storage ss{};
  socklen_t length = ToSockaddr(Local(0), ss);
  ASSERT_EQ(::bind(bound.get(), reinterpret_cast<sockaddr*>(&ss), length), 0);  // not listening: refused
  Peer guest = Tls(PortOf(bound.get()));
  Message answer = guest.Ask(Get("api.test"));
  EXPECT_EQ(answer.head.status, 502);
  EXPECT_TRUE(answer.body.contains("upstream_unreachable")) << answer.body;
  EXPECT_EQ(guest.Ask(Get("api.test")).head.status, 502) << "the connection goes on";
}

TEST_F(InterceptTest, Http2OnlyClientIsDeniedWithAnAlert) {
  Start({{"api.test", {Inject({{"x-key", "canary"}})}}});
  Peer guest(Redirected(true, "api.test", 443));
  EXPECT_FALSE(guest.Connect(GuestTls("\x02h2"), "api.test"));
  EXPECT_EQ(ERR_GET_REASON(ERR_peek_error()), SSL_R_TLSV1_ALERT_NO_APPLICATION_PROTOCOL);
  Peer both(Redirected(true, "api.test", 443));
  EXPECT_TRUE(both.Connect(GuestTls("\x02h2\x08http/1.1"), "api.test"));
  auto denials = Denials();
  ASSERT_EQ(denials.size(), 1u);
  EXPECT_EQ(denials[0].kind, "tls");
  EXPECT_EQ(denials[0].target, "api.test:443");
}

TEST_F(InterceptTest, OtherNameThanTheDecidedOneIsNotServed) {
  Start({{"*", {Inject({{"x-key", "canary"}})}}});
  Peer guest(Redirected(true, "api.test", 443));
  SSL_CTX* context = GuestTls("\x08http/1.1");
  SSL_CTX_set_verify(context, SSL_VERIFY_NONE, nullptr);
  guest.Connect(context, "other.test");
  guest.Send(Get("other.test"));
  EXPECT_EQ(guest.ReadAll(), "");
}

TEST_F(InterceptTest, MatchersAndFirstMatch) {
  Upstream up(&certificate_);
  auto by_path = [](Matcher m) { return RequestMatch{.path = std::move(m)}; };
  auto by_query = [](std::optional<Matcher> k, std::optional<Matcher> v) {
    return RequestMatch{.query = {{std::move(k), std::move(v)}}};
  };
  auto by_header = [](std::optional<Matcher> k, std::optional<Matcher> v) {
    return RequestMatch{.headers = {{std::move(k), std::move(v)}}};
  };
  RequestMatch all{.path = Starts("/all"), .methods = {"PUT", "GET"}, .query = {{Exact("a"), Exact("1")}}};
  all.headers = {{Exact("x-a"), Regex("^[0-9]+$")}};
  Start({{"api.test",
          {Say("path exact", by_path(Exact("/p/exact"))), Say("path starts", by_path(Starts("/p/starts"))),
           Say("path regex", by_path(Regex("^/p/r[0-9]+$"))), Say("query exact", by_query(Exact("qe"), Exact("1 2"))),
           Say("query starts", by_query(Starts("qs"), Starts("v"))), Say("query regex", by_query(Regex("^q[xy]$"), {})),
           Say("header exact", by_header(Exact("X-He"), Exact("v"))),
           Say("header starts", by_header(Starts("x-hs"), std::nullopt)),
           Say("header regex", by_header(Regex("^x-hr.$"), Regex("b+"))), Say("all", all),
           Say("method", RequestMatch{.methods = {"DELETE"}}), Say("never", by_path(Starts("/p/starts/more")))}}});
  Peer guest = Tls(up.port());
  auto ask = [&](const std::string& method, const std::string& target, const std::string& more = "") {
    return guest.Ask(method + " " + target + " HTTP/1.1\r\nHost: api.test\r\n" + more + "\r\n").body;
  };
  EXPECT_EQ(ask("GET", "/p/exact"), "path exact");
  EXPECT_EQ(ask("GET", "/p/exact?x"), "path exact");
  EXPECT_EQ(ask("GET", "/p/exactly"), "hello");
  EXPECT_EQ(ask("GET", "/p/starts/more"), "path starts");
  EXPECT_EQ(ask("GET", "/p/r42"), "path regex");
  EXPECT_EQ(ask("GET", "/p/r42x"), "hello");
  EXPECT_EQ(ask("GET", "/?b=1&qe=1%202"), "query exact");
  EXPECT_EQ(ask("GET", "/?qe=1"), "hello");
  EXPECT_EQ(ask("GET", "/?qsomething=value"), "query starts");
  EXPECT_EQ(ask("GET", "/?qy"), "query regex");
  EXPECT_EQ(ask("GET", "/", "x-he: v\r\n"), "header exact");
  EXPECT_EQ(ask("GET", "/", "X-HE: V\r\n"), "hello");
  EXPECT_EQ(ask("GET", "/", "X-Hs-1: 1\r\n"), "header starts");
  EXPECT_EQ(ask("GET", "/", "X-Hr1: abbc\r\n"), "header regex");
  EXPECT_EQ(ask("PUT", "/all/x?a=1", "X-A: 12\r\n"), "all");
  EXPECT_EQ(ask("PUT", "/all/x?a=2", "X-A: 12\r\n"), "hello");
  EXPECT_EQ(ask("PATCH", "/all/x?a=1", "X-A: 12\r\n"), "hello");
  EXPECT_EQ(ask("PUT", "/all/x?a=1", "X-A: b\r\n"), "hello");
  EXPECT_EQ(ask("DELETE", "/"), "method");
  EXPECT_EQ(ask("delete", "/"), "method");
}

TEST_F(InterceptTest, PathTricksDoNotDodgeAMatcher) {
  Upstream up(&certificate_);
  Start({{"api.test", {Say("guarded", RequestMatch{.path = Starts("/admin/")})}}});
  for (const char* path :
       {"/admin/", "/x/../admin/k", "/x/%2e%2E/admin/k", "/%61dmin/k", "/./admin/k", "/a/b/../../admin/k"})
    EXPECT_EQ(Tls(up.port()).Ask(Get("api.test", path)).body, "guarded") << path;
  // Some servers read these as /admin/k, others do not: they reach neither.
  for (const char* path : {"//admin/k", "/admin%2Fk", "/admin%5ck", "/x/..%2fadmin/k", "/x/%2e%2e%2fadmin/k", "/%zz",
                           "/%00", "/admin;v=1/k", "/x/..;/admin/k", "/admin%3Bx/k"}) {
    const bool malformed = std::string_view(path) == "/%zz" || std::string_view(path) == "/%00";
    EXPECT_EQ(Tls(up.port()).Ask(Get("api.test", path)).head.status, malformed ? 400 : 403) << path;
  }
  EXPECT_TRUE(up.seen().empty());
  EXPECT_EQ(Tls(up.port()).Ask(Get("api.test", "/@scope%2fname/..%20/%7euser//x?u=%2e%2e/")).body, "hello");
  ASSERT_EQ(up.seen().size(), 1u);
  EXPECT_EQ(up.seen()[0].head.target, "/@scope%2Fname/..%20/~user//x?u=%2e%2e/");
}

TEST_F(InterceptTest, ASecretOfAPathIsNotGivenToWhatIsDecodedTwice) {
  Upstream up(&certificate_);
  Start({{"api.test", {Inject({{"x-key", "canary"}}, RequestMatch{.path = Starts("/v1/")})}}});
  for (const char* path : {"/v1/%252e%252e/admin",
                           "/v1/%252E%252e/admin",
                           "/v1/%25252e%25252e/admin",
                           "/v1/.%252e/admin",
                           "/v1/..;/admin",
                           "/v1/..;x=1/admin",
                           "/v1/..%3b/admin",
                           "/v1/%252e%252e%252fadmin",
                           "/v1/..%2fadmin",
                           "/v1/..%252fadmin",
                           "/v1/..%5cadmin",
                           "/v1/..%255cadmin",
                           "/v1/x\\..\\admin",
                           "/v1/%c0%ae%c0%ae/admin",
                           "/v1/%e0%80%ae./admin",
                           "/v1/%25c0%25ae./admin",
                           "/v1/..%2500/admin",
                           "/v1/a%0ab",
                           "/v1/%252525252e./admin",
                           "/v1%2f..%2fadmin",
                           "/v1/..%3f/admin",
                           "/v1/%2e%2e%3b/admin",
                           "/v1%252fx",
                           "//v1/x",
                           "/v1%2fx"}) {
    Message refused = Tls(up.port()).Ask(Get("api.test", path));
    EXPECT_EQ(refused.head.status, 403) << path;
    EXPECT_TRUE(refused.body.contains("rules about paths")) << path << ": " << refused.body;
  }
  EXPECT_TRUE(up.seen().empty());
  EXPECT_GE(state_.counters.denied, 20u);
  EXPECT_EQ(Denials().back().host, "api.test");
  // What stays below /v1/ however it is read gets the secret, what is resolved before it is sent does not.
  for (const char* path : {"/v1/a%2fb", "/v1//x", "/v1/a;b/c", "/v1/50%25", "/v1/%2541", "/v1/...", "/v1/a%20b",
                           "/v1/%c3%a4", "/v1/x/../y"}) {
    EXPECT_EQ(Tls(up.port()).Ask(Get("api.test", path)).head.status, 200) << path;
    EXPECT_EQ(up.seen().back().head.Get("x-key"), "canary") << path;
  }
  for (const char* path : {"/v1/../admin", "/v1/%2e%2e/admin", "/other/%2525"}) {
    EXPECT_EQ(Tls(up.port()).Ask(Get("api.test", path)).head.status, 200) << path;
    EXPECT_FALSE(wire::HasField(up.seen().back().head.fields, "x-key")) << path;
  }
}

TEST_F(InterceptTest, OddPathsPassWhereNoRuleLooksAtThem) {
  Upstream up(&certificate_);
  Start({{"api.test", {Inject({{"x-key", "canary"}}, RequestMatch{.methods = {"GET"}})}}});
  for (const char* path : {"/v1/%252e%252e/admin", "/..;/x", "/a%5cb", "/a%2f%2fb", "//x", "/%c0%ae", "/a%0ab"}) {
    EXPECT_EQ(Tls(up.port()).Ask(Get("api.test", path)).head.status, 200) << path;
    EXPECT_EQ(up.seen().back().head.Get("x-key"), "canary") << path;
  }
}

TEST_F(InterceptTest, CostlyMatchersDoNotHoldUpTheLoop) {
  Upstream up(&certificate_);
  Matcher costly{Matcher::Kind::kRegex, "^/(?:a?){900}b$"};
  Start({{"api.test", {Say("matched", RequestMatch{.path = costly})}}});
  // Nothing is decided elsewhere until the test says so.
  std::promise<void> go;
  asio::post(matching_, [wait = go.get_future().share()] { wait.wait(); });
  Peer slow = Tls(up.port());
  Peer second = Tls(up.port());
  EXPECT_TRUE(slow.Send(Get("api.test", "/" + std::string(500, 'a') + "b")));
  EXPECT_TRUE(second.Send(Get("api.test", "/" + std::string(500, 'a') + "c")));
  // A short path takes few steps, and is decided at once.
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Tls(up.port()).Ask(Get("api.test", "/b")).body, "matched");
  EXPECT_TRUE(up.seen().empty());
  go.set_value();
  EXPECT_EQ(slow.Answer().body, "matched");
  EXPECT_EQ(second.Answer().body, "hello");
  // What would take too long anywhere is refused.
  Message refused = Tls(up.port()).Ask(Get("api.test", "/" + std::string(9000, 'a')));
  EXPECT_EQ(refused.head.status, 403);
  EXPECT_TRUE(refused.body.contains("too long for the matchers")) << refused.body;
  EXPECT_EQ(Denials().back().rule, "api.test");
}

TEST_F(InterceptTest, StrictDeniesWhatNoRuleMatches) {
  Upstream up(&certificate_);
  config_.strict = true;
  Start({{"api.test", {Inject({{"x-key", "canary"}}, RequestMatch{.path = Starts("/v1/")})}}});
  Peer guest = Tls(up.port());
  EXPECT_EQ(guest.Ask(Get("api.test", "/v1/x")).head.status, 200);
  Message denied = guest.Ask(Get("api.test", "/v2/x"));
  EXPECT_EQ(denied.head.status, 403);
  EXPECT_TRUE(denied.body.contains("egress_denied"));
  EXPECT_EQ(up.seen().size(), 1u);
}

TEST_F(InterceptTest, ResponseRuleAnswersHere) {
  RespondAction teapot{.status = 418, .headers = {{"X-From", "rule"}}, .body = "short", .content_type = "text/plain"};
  RespondAction empty{.status = 204};
  Start({{"api.test", {{RequestMatch{.path = Exact("/none")}, empty}, {std::nullopt, teapot}}}});
  Peer guest = Tls(443);
  Message answer = guest.Ask("POST / HTTP/1.1\r\nHost: api.test\r\nContent-Length: 3\r\n\r\nabc");
  EXPECT_EQ(answer.head.status, 418);
  EXPECT_EQ(answer.body, "short");
  EXPECT_EQ(Field(answer, "x-from"), "rule");
  EXPECT_EQ(Field(answer, "content-type"), "text/plain");
  EXPECT_EQ(guest.Ask(Get("api.test", "/none")).head.status, 204);
  EXPECT_TRUE(guest.Send("HEAD / HTTP/1.1\r\nHost: api.test\r\n\r\n"));
  EXPECT_EQ(Field(guest.Answer(true), "content-length"), "5");
  EXPECT_EQ(guest.Ask(Get("api.test")).head.status, 418) << "nothing is left over from the HEAD";
}

struct Smuggled {
  const char* what;
  std::string bytes;
};

TEST_F(InterceptTest, AmbiguousRequestsAreRefusedAndNotForwarded) {
  Upstream up(nullptr);
  Start({{"good.test", {}}});
  const std::string post = "POST / HTTP/1.1\r\nHost: good.test\r\n";
  const std::string rest = "\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: good.test\r\n\r\n";
  const std::vector<Smuggled> table = {
      {"TE xchunked + CL", post + "Transfer-Encoding: xchunked\r\nContent-Length: 5\r\n" + rest},
      {"TE identity + CL", post + "Transfer-Encoding: identity\r\nContent-Length: 5\r\n" + rest},
      {"TE chunked, identity + CL", post + "Transfer-Encoding: chunked, identity\r\nContent-Length: 5\r\n" + rest},
      {"TE then CL", post + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n" + rest},
      {"CL then TE", post + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n" + rest},
      {"HTTP/1.0 + TE", "POST / HTTP/1.0\r\nHost: good.test\r\nTransfer-Encoding: chunked\r\n" + rest},
      {"CL list", post + "Content-Length: 30, 30\r\n" + rest},
      {"CL twice", post + "Content-Length: 5\r\nContent-Length: 5\r\n" + rest},
      {"space before colon", post + "Content-Length : 5\r\n" + rest},
      {"bare LF", "GET / HTTP/1.1\nHost: good.test\n\n"},
      {"chunk extension", post + "Transfer-Encoding: chunked\r\n\r\n5;a=\"\n\"\r\nhello\r\n0\r\n\r\n"},
      {"CL in trailer", post + "Transfer-Encoding: chunked\r\n\r\n0\r\nContent-Length: 5\r\n\r\n"},
      {"no Host", "GET / HTTP/1.1\r\n\r\n"},
      {"no Host, 1.0", "GET / HTTP/1.0\r\n\r\n"},
      {"two Hosts", "GET / HTTP/1.1\r\nHost: good.test\r\nHost: evil.test\r\n\r\n"},
      {"CL +30", post + "Content-Length: +30\r\n" + rest},
      {"NUL", post + std::string("X: a\0b\r\n\r\n", 10)},
      {"lone CR", post + "X: a\rb\r\n\r\n"},
      {"chunk size overflow", post + "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n"},
      {"empty value ended by CR", post + "X:\rContent-Length: 5\r\n\r\n"},
      {"CRLF CR X", post + "X: a\r\n\rX\r\n\r\n"},
      {"absolute form", "GET http://good.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n"},
      {"CONNECT", "CONNECT good.test:443 HTTP/1.1\r\nHost: good.test\r\n\r\n"},
      {"CONNECT path", "CONNECT / HTTP/1.1\r\nHost: good.test\r\n\r\n"},
      {"TRACE", "TRACE / HTTP/1.1\r\nHost: good.test\r\n\r\n"},
      {"Host with path", "GET / HTTP/1.1\r\nHost: good.test:80:80\r\n\r\n"},
  };
  for (const Smuggled& s : table) {
    Message answer = Plain(up.port(), s.bytes).Answer();
    const bool refused = answer.head.status == 400 || (answer.head.status == 403 && s.bytes.contains(":80:80"));
    EXPECT_TRUE(refused) << s.what << ": " << answer.head.status;
    EXPECT_FALSE(answer.head.keep_alive && answer.head.status == 400) << s.what;
  }
  EXPECT_TRUE(up.seen().empty());
  EXPECT_EQ(up.accepted(), 0);
}

}  // namespace
}  // namespace sandbar::egress::testing
