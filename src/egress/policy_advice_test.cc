#include "egress/policy_advice.h"

#include <gtest/gtest.h>

namespace sandbar::egress {
namespace {

Attempt Tried(std::string kind, std::string host, std::string address, bool allowed = false) {
  Attempt a;
  a.kind = std::move(kind);
  a.host = std::move(host);
  a.address = std::move(address);
  a.port = 443;
  a.allowed = allowed;
  return a;
}

const std::vector<Attempt> kTried = {
    Tried("dns", "registry.test", ""),        Tried("tls", "api.test", "", true),
    Tried("http", "plain.test", ""),          Tried("tcp", "git.test", "192.0.2.5"),
    Tried("tcp", "", "2001:db8::7"),          Tried("tls", "api.test", "192.0.2.9", true),
    Tried("dns", "looked-up.test", "", true), Tried("dns", "1.2.0.192.in-addr.arpa", ""),
};

TEST(Suggest, TheSmallestPolicyForWhatWasTried) {
  NetworkPolicy policy = Suggest(kTried);
  EXPECT_EQ(policy.mode, EgressMode::kCustom);
  std::vector<std::string> names;
  for (const DomainEntry& d : policy.domains) names.push_back(d.pattern);
  EXPECT_EQ(names, (std::vector<std::string>{"api.test", "plain.test", "registry.test"}));
  EXPECT_EQ(policy.allow_cidrs, (std::vector<std::string>{"192.0.2.5/32", "2001:db8::7/128"}));
  EXPECT_TRUE(Compile(policy).has_value());
}

TEST(Suggest, NothingTriedIsDenyAll) {
  EXPECT_EQ(Suggest({}), NetworkPolicy{});
  EXPECT_EQ(Suggest({Tried("dns", "looked-up.test", "", true)}).mode, EgressMode::kDenyAll);
}

TEST(Suggest, WhatTheServerItselfRefusesIsLeftOut) {
  Attempt metadata = Tried("tcp", "", "169.254.169.254");
  metadata.rule = "server";
  EXPECT_EQ(Suggest({metadata}).mode, EgressMode::kDenyAll);
  EXPECT_TRUE(Replay({metadata}, *DenyAll(), *AllowAll()).empty());
}

TEST(Replay, ANameAloneDoesNotOpenOtherProtocols) {
  NetworkPolicy wanted{.mode = EgressMode::kCustom};
  wanted.domains = {{"git.test", {}}};
  auto candidate = *Compile(wanted);
  auto changes = Replay({Tried("tcp", "git.test", "")}, *AllowAll(), *candidate);
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_FALSE(changes[0].allowed_then);
}

TEST(Replay, WhatItSuggestsLetsEverythingThroughThatMatters) {
  auto suggested = *Compile(Suggest(kTried));
  for (const AttemptChange& c : Replay(kTried, *AllowAll(), *suggested)) {
    EXPECT_EQ(c.attempt.kind, "dns");
    EXPECT_FALSE(c.allowed_then);
  }
}

TEST(Replay, SaysWhatWouldChangeAndWhy) {
  NetworkPolicy wanted{.mode = EgressMode::kCustom};
  wanted.domains = {{"*.example.test", {}}};
  wanted.deny_cidrs = {"192.0.2.0/24"};
  auto candidate = *Compile(wanted);
  std::vector<Attempt> tried = {Tried("tls", "a.example.test", ""), Tried("tls", "evil.test", "", true),
                                Tried("tls", "b.example.test", "192.0.2.1", true)};
  auto changes = Replay(tried, *AllowAll(), *candidate);
  ASSERT_EQ(changes.size(), 2u);
  EXPECT_EQ(changes[0].attempt.host, "evil.test");
  EXPECT_TRUE(changes[0].allowed_now);
  EXPECT_EQ(changes[0].rule_now, "allow-all");
  EXPECT_EQ(changes[0].rule_then, "no rule allows it");
  EXPECT_EQ(changes[1].rule_then, "subnets.deny 192.0.2.0/24");
  changes = Replay(tried, *DenyAll(), *candidate);
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_TRUE(changes[0].allowed_then);
  EXPECT_EQ(changes[0].rule_then, R"(allow "*.example.test")");
}

}  // namespace
}  // namespace sandbar::egress
