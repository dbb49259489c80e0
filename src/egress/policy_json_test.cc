#include "egress/policy_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>

namespace sandbar::egress {
namespace {

namespace json = boost::json;
using testing::HasSubstr;

NetworkPolicy Parse(std::string_view text) {
  auto policy = ParsePolicy(text);
  EXPECT_TRUE(policy) << text << ": " << (policy ? "" : policy.error().message);
  return policy.value_or(NetworkPolicy{});
}

std::string Why(std::string_view text) {
  auto policy = ParsePolicy(text);
  if (policy) return "accepted";
  EXPECT_EQ(policy.error().code, Code::kBadRequest);
  return policy.error().message;
}

constexpr std::string_view kEverything = R"({"allow":{
  "api.example":[
    {"match":{"path":{"startsWith":"/v1"},"method":["GET","POST"],
              "queryString":[{"key":{"exact":"q"},"value":{"regex":"^[0-9]+$"}}],
              "headers":[{"key":{"exact":"x-kind"}}]},
     "transform":[{"headers":{"authorization":"Bearer canary-1"}},{"headers":{"x-b":"canary-2"}}]},
    {"forwardURL":"https://proxy.example/in"},
    {"response":{"statusCode":418,"headers":{"x-why":"canary-3"},"body":"no","contentType":"text/plain"}}],
  "*.cdn.example":[], "*":[]},
  "subnets":{"allow":["203.0.113.0/24"],"deny":["10.0.0.0/8"]}})";

TEST(PolicyJson, Modes) {
  EXPECT_EQ(Parse(R"({"mode":"allow-all"})").mode, EgressMode::kAllowAll);
  EXPECT_EQ(Parse(R"({"mode":"deny-all"})").mode, EgressMode::kDenyAll);
  for (const char* empty : {"{}", R"({"mode":"custom"})", R"({"allow":[]})", R"({"allow":{}})", R"({"subnets":{}})"})
    EXPECT_EQ(Parse(empty).mode, EgressMode::kDenyAll) << empty;
  // Denies nothing but what it names, in a default of denial: kept as it was said.
  NetworkPolicy deny_only = Parse(R"({"subnets":{"deny":["10.0.0.0/8"]}})");
  EXPECT_EQ(deny_only.mode, EgressMode::kCustom);
  EXPECT_EQ(deny_only.deny_cidrs.size(), 1U);
}

TEST(PolicyJson, ListAndObjectKeepTheirOrder) {
  NetworkPolicy list = Parse(R"({"allow":["z.example","A.Example.","*"]})");
  ASSERT_EQ(list.domains.size(), 3U);
  EXPECT_EQ(list.domains[0].pattern, "z.example");
  EXPECT_EQ(list.domains[1].pattern, "a.example");
  NetworkPolicy object = Parse(R"({"allow":{"z.example":[],"a.example":[],"*":[]}})");
  EXPECT_EQ(object, list);
}

TEST(PolicyJson, EveryRule) {
  NetworkPolicy p = Parse(kEverything);
  ASSERT_EQ(p.domains.size(), 3U);
  const auto& rules = p.domains[0].rules;
  ASSERT_EQ(rules.size(), 3U);
  const auto& transform = std::get<TransformAction>(rules[0].action);
  EXPECT_EQ(transform.headers, (std::vector<NameValue>{{"authorization", "Bearer canary-1"}, {"x-b", "canary-2"}}));
  ASSERT_TRUE(rules[0].match);
  EXPECT_EQ(rules[0].match->path, (Matcher{Matcher::Kind::kStartsWith, "/v1"}));
  EXPECT_EQ(rules[0].match->methods, (std::vector<std::string>{"GET", "POST"}));
  EXPECT_EQ(rules[0].match->query[0].value, (Matcher{Matcher::Kind::kRegex, "^[0-9]+$"}));
  EXPECT_FALSE(rules[0].match->headers[0].value);
  EXPECT_EQ(std::get<ForwardAction>(rules[1].action).url, "https://proxy.example/in");
  EXPECT_EQ(std::get<RespondAction>(rules[2].action).status, 418);
  EXPECT_EQ(p.allow_cidrs, std::vector<std::string>{"203.0.113.0/24"});
  EXPECT_TRUE(Compile(p));
}

TEST(PolicyJson, LosslessRoundTrip) {
  NetworkPolicy p = Parse(kEverything);
  EXPECT_EQ(Parse(json::serialize(PolicyJson(p))), p);
  for (const char* text :
       {R"({"mode":"allow-all"})", R"({"mode":"deny-all"})", R"({"subnets":{"deny":["10.0.0.0/8"]}})"})
    EXPECT_EQ(Parse(json::serialize(PolicyJson(Parse(text)))), Parse(text)) << text;
}

TEST(PolicyJson, OldForm) {
  NetworkPolicy p = Parse(R"({"mode":"custom","allowedDomains":["x.example","*"],"allowedCIDRs":["203.0.113.0/24"],
    "deniedCIDRs":["10.0.0.0/8"],"injectionRules":[{"domain":"X.example","headers":{"authorization":"s"}},
    {"domain":"only.example","headers":{"x-a":"1"},"match":{"path":{"exact":"/"}}}],
    "forwardRules":[{"domain":"x.example","forwardURL":"https://p.example"}]})");
  ASSERT_EQ(p.domains.size(), 3U);
  EXPECT_EQ(p.domains[0].rules.size(), 2U);  // one spelling of the domain, both rules
  EXPECT_EQ(p.domains[2].pattern, "only.example");
  EXPECT_TRUE(p.domains[2].rules[0].match);
  EXPECT_EQ(p.allow_cidrs.size(), 1U);
  EXPECT_EQ(p.deny_cidrs.size(), 1U);
}

TEST(PolicyJson, AnswerHasNoValues) {
  std::string answer = json::serialize(AnswerJson(Parse(kEverything)));
  EXPECT_THAT(answer, testing::Not(HasSubstr("canary")));
  json::object o = json::parse(answer).as_object();
  EXPECT_EQ(o["mode"], "custom");
  EXPECT_EQ(o["allowedDomains"], (json::array{"api.example", "*.cdn.example", "*"}));
  const json::object& injection = o["injectionRules"].as_array()[0].as_object();
  EXPECT_EQ(injection.at("headerNames"), (json::array{"authorization", "x-b"}));
  EXPECT_EQ(injection.at("match").at("method"), (json::array{"GET", "POST"}));
  EXPECT_EQ(o["forwardRules"].as_array()[0].at("forwardURL"), "https://proxy.example/in");
  EXPECT_EQ(o["responseRules"].as_array()[0].at("statusCode"), 418);
  EXPECT_EQ(o["deniedCIDRs"], json::array{"10.0.0.0/8"});
  // Clients rebuild what they sent from the keys that are there.
  EXPECT_EQ(json::serialize(AnswerJson(Parse(R"({"allow":["x.example"]})"))),
            R"({"mode":"custom","allowedDomains":["x.example"]})");
}

TEST(PolicyJson, WrongOnesAreNamed) {
  EXPECT_THAT(Why(R"({"mode":"open"})"), HasSubstr("mode"));
  EXPECT_THAT(Why(R"({"mode":"allow-all","allow":["x"]})"), HasSubstr("take no rules"));
  EXPECT_THAT(Why(R"({"alow":[]})"), HasSubstr("did you mean `allow`"));
  EXPECT_THAT(Why(R"({"allow":"x.example"})"), HasSubstr("allow"));
  EXPECT_THAT(Why(R"({"allow":["a*.example"]})"), HasSubstr("whole label"));
  EXPECT_THAT(Why(R"({"allow":["10.0.0.1"]})"), HasSubstr("subnets"));
  EXPECT_THAT(Why(R"({"allow":{"x.example":[{}]}})"), HasSubstr("exactly one of"));
  EXPECT_THAT(Why(R"({"allow":{"x.example":[{"forwardURL":"https://a","response":{"statusCode":200}}]}})"),
              HasSubstr("allow.x.example[0]"));
  EXPECT_THAT(Why(R"({"allow":{"x.example":[{"tranform":[]}]}})"), HasSubstr("did you mean `transform`"));
  EXPECT_THAT(Why(R"({"allow":{"x.example":[{"match":{"path":{"exact":"/","regex":"."}},"transform":[]}]}})"),
              HasSubstr("exactly one of"));
  EXPECT_THAT(Why(R"({"mode":"custom","allowedDomains":["x"],"allow":["y"]})"), HasSubstr("one of the two"));
  for (const char* wrong : {"[]", R"("deny-all")", R"({"mode":null})", R"({"subnets":{"allow":"1.1.1.1"}})"})
    EXPECT_NE(Why(wrong), "accepted") << wrong;
}

TEST(PolicyJson, ManyDomainsCostNoMoreThanTheirText) {
  std::string text = R"({"allow":[)";
  for (int i = 0; i < 100'000; ++i) text += "\"d" + std::to_string(i) + ".example\",";
  text.back() = ']';
  NetworkPolicy p = Parse(text + "}");
  EXPECT_FALSE(Compile(p));
}

TEST(PolicyJson, WhatIsTooMuchIsRefusedBeforeItIsDecoded) {
  std::string pairs = R"({"allow":{"x.example":[{"response":{"statusCode":204},"match":{"headers":[)";
  for (int i = 0; i < 100'000; ++i) pairs += R"({"key":{"exact":"a"}},)";
  pairs.back() = ']';
  EXPECT_THAT(Why(pairs + "}}]}}"), HasSubstr("too many rules and matchers"));
  std::string repeated = R"({"allow":[)";
  for (int i = 0; i < 100'000; ++i) repeated += R"("x.example",)";
  repeated.back() = ']';
  EXPECT_THAT(Why(repeated + "}"), HasSubstr("more than 10000 times"));
}

}  // namespace
}  // namespace sandbar::egress
