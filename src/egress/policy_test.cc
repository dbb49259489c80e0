#include "egress/policy.h"

#include <gtest/gtest.h>

#include "egress/decide.h"

namespace sandbar::egress {
namespace {

using namespace std::string_literals;

NetworkPolicy With(std::vector<DomainEntry> domains) {
  NetworkPolicy policy{.mode = EgressMode::kCustom};
  policy.domains = std::move(domains);
  return policy;
}

std::string Complaint(NetworkPolicy policy) {
  auto compiled = Compile(std::move(policy));
  if (compiled) return "accepted";
  EXPECT_EQ(compiled.error().code, Code::kBadRequest);
  return compiled.error().message;
}

TEST(CanonicalName, OneForm) {
  EXPECT_EQ(*CanonicalName("API.Example.TEST."), "api.example.test");
  EXPECT_EQ(*CanonicalName("bücher.test"), "xn--bcher-kva.test");
  EXPECT_EQ(*CanonicalName("BÜCHER.test"), "xn--bcher-kva.test");
  EXPECT_EQ(*CanonicalName("xn--bcher-kva.test"), "xn--bcher-kva.test");
  EXPECT_EQ(*CanonicalName("_dmarc.a-b.test"), "_dmarc.a-b.test");
  EXPECT_EQ(*CanonicalName("localhost"), "localhost");
  EXPECT_EQ(*CanonicalName(std::string(63, 'a') + ".test"), std::string(63, 'a') + ".test");
}

TEST(CanonicalName, FullWidthDigitsAndDotsAreWhatTheyLookLike) {
  // UTS 46 maps them to ASCII, so they would be an address after all.
  EXPECT_FALSE(CanonicalName("１２７.0.0.1"));
  EXPECT_FALSE(CanonicalName("127。0。0。1"));
}

TEST(CanonicalName, RefusesWhatIsNone) {
  for (const std::string& bad : {""s,
                                 "."s,
                                 "a..b"s,
                                 ".a"s,
                                 "a.."s,
                                 "a b"s,
                                 "a/b"s,
                                 "a:80"s,
                                 "a\0.b"s,
                                 "ü\0.b"s,
                                 "*.a"s,
                                 "a\n"s,
                                 "[::1]"s,
                                 "::1"s,
                                 "127.0.0.1"s,
                                 "127.1"s,
                                 "2130706433"s,
                                 "0x7f000001"s,
                                 "0x7f.0.0.1"s,
                                 "0177.0.0.1"s,
                                 "1.2.3.4."s,
                                 "a.0x"s,
                                 "user@a.test"s,
                                 "%61.test"s,
                                 std::string(64, 'a') + ".test",
                                 std::string(5000, 'a')}) {
    EXPECT_FALSE(CanonicalName(bad)) << bad;
  }
  std::string long_name;
  while (long_name.size() < 250) long_name += "abcdefgh.";
  EXPECT_FALSE(CanonicalName(long_name + "test"));
}

TEST(PatternFits, Wildcards) {
  EXPECT_TRUE(PatternFits("*", "anything.test"));
  EXPECT_TRUE(PatternFits("x.test", "x.test"));
  EXPECT_FALSE(PatternFits("x.test", "a.x.test"));
  EXPECT_TRUE(PatternFits("*.x.test", "a.x.test"));
  EXPECT_TRUE(PatternFits("*.x.test", "a.b.c.x.test"));
  EXPECT_FALSE(PatternFits("*.x.test", "x.test"));
  EXPECT_FALSE(PatternFits("*.x.test", "evilx.test"));
  EXPECT_FALSE(PatternFits("*.x.test", "x.test.evil"));
  EXPECT_TRUE(PatternFits("a.*.test", "a.b.test"));
  EXPECT_FALSE(PatternFits("a.*.test", "a.b.c.test"));
  EXPECT_FALSE(PatternFits("a.*.test", "a.test"));
  EXPECT_TRUE(PatternFits("*.a.*.test", "x.y.a.b.test"));
  EXPECT_FALSE(PatternFits("*.a.*.test", "a.b.test"));
}

TEST(CanonicalPattern, WholeLabelsOnly) {
  EXPECT_EQ(*CanonicalPattern("*.X.test."), "*.x.test");
  EXPECT_EQ(*CanonicalPattern("*"), "*");
  for (const char* bad : {"a*.test", "**.test", "*x", "", "1.2.3.4", "a.test/path", "https://a.test"})
    EXPECT_FALSE(CanonicalPattern(bad)) << bad;
  // An international pattern keeps its wildcard.
  EXPECT_EQ(*CanonicalPattern("*.bücher.test"), "*.xn--bcher-kva.test");
}

TEST(Policy, FirstFittingEntryActs) {
  Rule rule{.match = {}, .action = RespondAction{.status = 204}};
  auto policy = *Compile(With({{"api.x.test", {}}, {"*.x.test", {rule}}, {"*", {}}}));
  EXPECT_EQ(policy->FindName("api.x.test")->pattern, "api.x.test");
  EXPECT_EQ(policy->FindName("b.x.test")->pattern, "*.x.test");
  EXPECT_EQ(policy->FindName("y.test")->pattern, "*");
  EXPECT_TRUE(policy->HasRules());
  EXPECT_EQ(AllowAll()->FindName("x.test"), nullptr);
}

TEST(Policy, DenyBeatsAllow) {
  NetworkPolicy p{.mode = EgressMode::kCustom};
  p.allow_cidrs = {"10.0.0.0/8", "2001:db8::/32", "192.0.2.7"};
  p.deny_cidrs = {"10.1.0.0/16"};
  auto policy = *Compile(p);
  auto at = [&](const char* text) { return policy->DecideAddress(*ParseAddress(text)); };
  EXPECT_EQ(at("10.2.0.1"), AddressDecision::kAllowed);
  EXPECT_EQ(at("10.1.0.1"), AddressDecision::kDenied);
  EXPECT_EQ(at("::ffff:10.1.0.1"), AddressDecision::kDenied);
  EXPECT_EQ(at("192.0.2.7"), AddressDecision::kAllowed);
  EXPECT_EQ(at("192.0.2.8"), AddressDecision::kNoRule);
  EXPECT_EQ(at("2001:db8::1"), AddressDecision::kAllowed);
}

TEST(Policy, RulesMatchInOrder) {
  RequestMatch read{
      .path = Matcher{Matcher::Kind::kStartsWith, "/v1/"}, .methods = {"GET", "HEAD"}, .query = {}, .headers = {}};
  RequestMatch odd;
  odd.path = Matcher{Matcher::Kind::kRegex, "^/item/[0-9]+$"};
  odd.headers = {{Matcher{Matcher::Kind::kExact, "X-Mode"}, Matcher{Matcher::Kind::kExact, "test"}}};
  odd.query = {{Matcher{Matcher::Kind::kExact, "q"}, std::nullopt}};
  std::vector<Rule> rules = {
      {read, RespondAction{.status = 201}}, {odd, RespondAction{.status = 202}}, {{}, RespondAction{.status = 203}}};
  auto policy = *Compile(With({{"x.test", rules}}));
  const DomainEntry& entry = *policy->FindName("x.test");
  std::vector<NameValue> none, query{{"q", "1"}}, headers{{"x-mode", "test"}}, wrong{{"x-mode", "Test"}};
  auto status = [&](std::string_view method, std::string_view path, const auto& q, const auto& h) {
    StepBudget budget(kMaxMatchSteps);
    auto rule = policy->FindRule(entry, {method, path, &q, &h}, budget);
    EXPECT_TRUE(rule);
    return !rule || *rule == nullptr ? 0 : std::get<RespondAction>((*rule)->action).status;
  };
  EXPECT_EQ(status("GET", "/v1/a", none, none), 201);
  EXPECT_EQ(status("POST", "/v1/a", none, none), 203);
  EXPECT_EQ(status("POST", "/item/7", query, headers), 202);
  EXPECT_EQ(status("POST", "/item/7", query, wrong), 203);   // values keep their case, names do not
  EXPECT_EQ(status("POST", "/item/7", none, headers), 203);  // every given pair must be there
  EXPECT_EQ(status("POST", "/item/7x", query, headers), 203);
}

TEST(Policy, WhatIsWrongIsNamed) {
  EXPECT_TRUE(Complaint(With({{"a*.test", {}}})).contains("a*.test"));
  EXPECT_TRUE(Complaint(With({{"1.2.3.4", {}}})).contains("use subnets"));
  NetworkPolicy cidr{.mode = EgressMode::kCustom};
  cidr.allow_cidrs = {"10.0.0.1/8"};
  EXPECT_TRUE(Complaint(cidr).contains("subnets.allow"));
  NetworkPolicy mode{.mode = EgressMode::kAllowAll};
  mode.deny_cidrs = {"10.0.0.0/8"};
  EXPECT_TRUE(Complaint(mode).contains("mode"));
  auto rule = [](auto action) { return With({{"x.test", {Rule{.match = {}, .action = std::move(action)}}}}); };
  EXPECT_TRUE(Complaint(rule(ForwardAction{"ftp://x.test"})).contains("forwardURL"));
  EXPECT_TRUE(Complaint(rule(ForwardAction{"http://u:p@x.test/"})).contains("forwardURL"));
  EXPECT_TRUE(Complaint(rule(RespondAction{.status = 199})).contains("statusCode"));
  EXPECT_TRUE(Complaint(rule(RespondAction{.status = 204, .headers = {}, .body = "x", .content_type = "a/b"}))
                  .contains("body"));
  EXPECT_TRUE(Complaint(rule(RespondAction{.status = 200, .headers = {}, .body = "x"})).contains("contentType"));
  for (const char* name : {"Content-Length", "transfer-encoding", "Connection", "Host", "bad name", ""})
    EXPECT_TRUE(Complaint(rule(TransformAction{{{name, "v"}}})).contains("transform.headers")) << name;
  std::string secret = Complaint(rule(TransformAction{{{"authorization", "s3cret\r\nx: y"}}}));
  EXPECT_TRUE(secret.contains("authorization"));
  EXPECT_FALSE(secret.contains("s3cret"));
  RequestMatch regex{.path = Matcher{Matcher::Kind::kRegex, "("}, .methods = {}, .query = {}, .headers = {}};
  EXPECT_TRUE(Complaint(With({{"x.test", {Rule{regex, RespondAction{}}}}})).contains("regular expression"));
}

TEST(Policy, BoundsHold) {
  EXPECT_TRUE(Complaint(With(std::vector<DomainEntry>(1001, {"x.test", {}}))).contains("1000"));
  EXPECT_EQ(Complaint(With(std::vector<DomainEntry>(1000, {"x.test", {}}))), "accepted");
  EXPECT_TRUE(Complaint(With({{"x.test", std::vector<Rule>(257, Rule{{}, RespondAction{}})}})).contains("256"));
  RequestMatch big{
      .path = Matcher{Matcher::Kind::kRegex, std::string(40000, 'a')}, .methods = {}, .query = {}, .headers = {}};
  EXPECT_TRUE(Complaint(With({{"x.test", {Rule{big, RespondAction{}}}}})).contains("at most 4000"));
  // A pattern that would need more memory than it is worth is refused, not compiled.
  RequestMatch bomb{
      .path = Matcher{Matcher::Kind::kRegex, "((a{100}){100}){100}"}, .methods = {}, .query = {}, .headers = {}};
  EXPECT_TRUE(Complaint(With({{"x.test", {Rule{bomb, RespondAction{}}}}})).contains("regular expression"));
}

Rule OnPath(const std::string& pattern) {
  RequestMatch match;
  match.path = Matcher{Matcher::Kind::kRegex, pattern};
  return {match, RespondAction{}};
}

TEST(Policy, LargeRegularExpressionsAreRefusedByRule) {
  // Each of these held up the whole server for seconds, at every request or when it was compiled.
  std::string many;
  for (int i = 0; i < 400; ++i) many += "a{0,1000}";
  for (const std::string& pattern : {"^/(?:a?){1000}b$"s, "(?:[^/]*/){400}"s, many, std::string(5000, 'a')}) {
    std::string complaint = Complaint(With({{"x.test", {OnPath("^/fine$"), OnPath(pattern)}}}));
    EXPECT_TRUE(complaint.contains(R"(allow["x.test"][1].match.path)")) << complaint;
    EXPECT_TRUE(complaint.contains("large") || complaint.contains("at most")) << complaint;
  }
  // Together they have a limit as well.
  EXPECT_EQ(Complaint(With({{"x.test", std::vector<Rule>(10, OnPath("^/[^/]{150}$"))}})), "accepted");
  EXPECT_TRUE(Complaint(With({{"x.test", std::vector<Rule>(30, OnPath("^/[^/]{150}$"))}})).contains("large together"));
}

TEST(Policy, WhatRulesCompareIsCounted) {
  PairMatch pair{Matcher{Matcher::Kind::kExact, "a"}, Matcher{Matcher::Kind::kExact, "b"}};
  auto with = [&](const RequestMatch& match) { return With({{"x.test", {Rule{match, RespondAction{}}}}}); };
  RequestMatch match;
  match.headers = std::vector<PairMatch>(500, pair);
  EXPECT_EQ(Complaint(with(match)), "accepted");
  match.query = {pair};
  EXPECT_TRUE(Complaint(with(match)).contains("1000 matchers"));
  RequestMatch empty;
  empty.headers = std::vector<PairMatch>(1001);
  EXPECT_TRUE(Complaint(with(empty)).contains("1000"));
  RequestMatch methods;
  methods.methods = std::vector<std::string>(33, "GET");
  EXPECT_TRUE(Complaint(with(methods)).contains("32 methods"));
  RequestMatch text;
  text.path = Matcher{Matcher::Kind::kExact, "/" + std::string(200'000, 'a')};
  EXPECT_TRUE(Complaint(with(text)).contains("128 KiB"));
  auto sets = [](size_t count, size_t length) {
    TransformAction action;
    for (size_t i = 0; i < count; ++i) action.headers.emplace_back("x-" + std::to_string(i), std::string(length, 'v'));
    return Rule{{}, action};
  };
  EXPECT_TRUE(Complaint(With({{"x.test", {sets(65, 4)}}})).contains("64 headers"));
  EXPECT_TRUE(Complaint(With({{"x.test", std::vector<Rule>(2, sets(64, 10'000))}})).contains("1 MiB"));
}

TEST(Policy, AMatchThatCostsTooMuchIsNoMatch) {
  auto policy = *Compile(With({{"x.test", {OnPath("^/(?:a?){900}b$"), {{}, RespondAction{.status = 203}}}}}));
  const DomainEntry& entry = *policy->FindName("x.test");
  EXPECT_TRUE(policy->HasPathRules(entry));
  auto find = [&](size_t length, uint64_t steps) {
    StepBudget budget(steps);
    const std::string path = "/" + std::string(length, 'a');
    return policy->FindRule(entry, {.method = "GET", .path = path}, budget);
  };
  ASSERT_TRUE(find(100, kMaxMatchSteps));
  EXPECT_EQ(std::get<RespondAction>((*find(100, kMaxMatchSteps))->action).status, 203);
  ASSERT_FALSE(find(100, kMaxLoopSteps));
  EXPECT_EQ(find(100, kMaxLoopSteps).error().code, Code::kTooLarge);
  EXPECT_FALSE(find(8000, kMaxMatchSteps));
}

TEST(Policy, TheIndexFindsWhatTheFirstFittingPatternIs) {
  const std::vector<std::string> patterns = {"b.x.test", "*.x.test", "a.*.test",   "*.a.*.test", "x.test", "*.test",
                                             "*",        "test",     "*.b.x.test", "a.b.x.test", "*.*"};
  const std::vector<std::string> names = {"test",     "x.test",       "a.x.test",     "b.x.test",  "a.b.x.test",
                                          "c.b.test", "y.a.b.test",   "z.y.a.q.test", "other",     "a.other",
                                          "x.a.test", "a.b.c.x.test", "a.y.test",     "b.a.y.test"};
  // Every rotation of the list, and every part of it.
  for (size_t first = 0; first < patterns.size(); ++first) {
    std::vector<DomainEntry> domains;
    for (size_t i = 0; i < patterns.size(); ++i) {
      domains.push_back({patterns[(first + i) % patterns.size()], {}});
      auto policy = *Compile(With(domains));
      for (const std::string& name : names) {
        auto fits = [&](const DomainEntry& e) { return PatternFits(e.pattern, name); };
        auto want = std::ranges::find_if(domains, fits);
        const DomainEntry* got = policy->FindName(name);
        EXPECT_EQ(got == nullptr ? "none" : got->pattern, want == domains.end() ? "none" : want->pattern) << name;
      }
    }
  }
}

TEST(Decide, NamesTheRuleAndTheSmallestChange) {
  NetworkPolicy p = With({{"*.x.test", {}}});
  p.allow_cidrs = {"192.0.2.0/24"};
  p.deny_cidrs = {"192.0.2.128/25"};
  auto policy = *Compile(p);
  EXPECT_EQ(DecideName(*policy, "a.x.test").rule, R"(allow "*.x.test")");
  EXPECT_EQ(DecideName(*policy, "y.test").hint, R"(add "y.test" to allow)");
  EXPECT_EQ(DecideAddress(*policy, *ParseAddress("192.0.2.1")).rule, "subnets.allow 192.0.2.0/24");
  EXPECT_EQ(DecideAddress(*policy, *ParseAddress("192.0.2.200")).rule, "subnets.deny 192.0.2.128/25");
  EXPECT_EQ(DecideAddress(*policy, *ParseAddress("2001:db8::1")).hint, R"(add "2001:db8::1/128" to subnets.allow)");
  EXPECT_EQ(DecideName(*DenyAll(), "y.test").rule, "deny-all");
  EXPECT_TRUE(DecideName(*DenyAll(), "y.test").hint.contains(R"({"allow":["y.test"]})"));
  EXPECT_TRUE(DecideAddress(*AllowAll(), *ParseAddress("192.0.2.1")).allowed);
}

}  // namespace
}  // namespace sandbar::egress
