// A policy that changes under open connections, and the budgets that connections share.
#include <algorithm>

#include "support/egress/custom_fixture.h"

namespace sandbar::egress::testing {
namespace {

using wire::testing::Hello;
using wire::testing::Sni;

class EgressUpdateTest : public EgressCustomTest {
 protected:
  void Tighten(PolicyRef next) {
    OnLoop([this, next] { egress_->Tighten(next); });
  }
  static bool IsCut(int fd) { return ReadToEnd(fd).error == ECONNRESET; }
};

TEST_F(EgressUpdateTest, ByNameOnlyWhatIsNoLongerAllowedIsCut) {
  Start(Custom({"api.example.test", "other.example.test"}));
  auto [guest, server] = Pair(Hello(Sni("api.example.test")));
  auto [gone, gone_server] = Pair(Hello(Sni("other.example.test")));
  SetPolicy(Custom({"*.test"}));
  EXPECT_TRUE(Works(gone.get(), gone_server.get()));
  SetPolicy(Custom({"api.example.test"}));
  EXPECT_TRUE(IsCut(gone.get()));
  EXPECT_TRUE(IsCut(gone_server.get()));
  EXPECT_TRUE(Works(guest.get(), server.get()));
  SetMode(EgressMode::kAllowAll);
  EXPECT_TRUE(Works(guest.get(), server.get()));
}

TEST_F(EgressUpdateTest, ADomainThatGainsRulesCannotBePassedOverAnyMore) {
  Start(Custom({"api.example.test"}));
  auto [guest, server] = Pair(Hello(Sni("api.example.test")));
  SetPolicy(Ruled("api.example.test", "s3cret"));
  EXPECT_TRUE(IsCut(guest.get()));
  EXPECT_TRUE(IsCut(server.get()));
}

TEST_F(EgressUpdateTest, ADeniedSubnetCutsTheNamesBehindIt) {
  Start(Custom({"api.example.test"}));
  auto [guest, server] = Pair(Hello(Sni("api.example.test")));
  SetPolicy(Custom({"api.example.test"}, {}, {"127.0.0.0/8"}));
  EXPECT_TRUE(IsCut(guest.get()));
}

TEST_F(EgressUpdateTest, ByAddress) {
  Start(Custom({}, {"127.0.0.0/8"}));
  SetTarget(Local(PortOf(server_.get())));
  auto [guest, server] = Pair("anything");
  SetPolicy(Custom({}, {"127.0.0.1/32"}));
  EXPECT_TRUE(Works(guest.get(), server.get()));
  SetPolicy(Custom({"*"}));
  EXPECT_TRUE(IsCut(guest.get()));
}

TEST_F(EgressUpdateTest, WhatAllowAllLetThroughUnreadIsNotTrustedByName) {
  Start(EgressMode::kAllowAll);
  SetTarget(Local(PortOf(server_.get())));
  auto [guest, server] = Pair(Hello(Sni("api.example.test")));
  SetPolicy(Custom({"api.example.test"}));
  EXPECT_TRUE(IsCut(guest.get()));
}

TEST_F(EgressUpdateTest, InterceptedConnectionsEndWhenTheirRulesChange) {
  interceptor_ = &fake_;
  Start(Ruled("api.example.test", "old"));
  Fd guest = Connected(Hello(Sni("api.example.test")));
  EXPECT_EQ(ReadSome(guest.get(), 3), "tls");
  SetPolicy(Ruled("api.example.test", "old"));
  ASSERT_TRUE(SendAll(guest.get(), "more"));
  SetPolicy(Ruled("api.example.test", "new"));
  EXPECT_TRUE(IsCut(guest.get()));
}

TEST_F(EgressUpdateTest, InterceptedConnectionsEndWhenAnotherSubnetIsDenied) {
  interceptor_ = &fake_;
  fake_.hosts = {"api.example.test"};
  Start(Custom({"api.example.test"}, {}, {"10.0.0.0/8"}));
  Fd guest = Connected("GET / HTTP/1.1\r\n");
  EXPECT_EQ(ReadSome(guest.get(), 4), "http");
  SetPolicy(Custom({"api.example.test", "other.example.test"}, {}, {"10.0.0.0/8"}));
  SetMode(EgressMode::kAllowAll);
  ASSERT_TRUE(SendAll(guest.get(), "more"));
  SetPolicy(Custom({"api.example.test"}, {}, {"10.0.0.0/8", "127.0.0.0/8"}));
  EXPECT_TRUE(IsCut(guest.get()));
}

TEST_F(EgressUpdateTest, PlainHttpIsHeldToTheHostsItReached) {
  interceptor_ = &fake_;
  fake_.hosts = {"api.example.test"};
  Start(Custom({"api.example.test", "other.example.test"}));
  Fd guest = Connected("GET / HTTP/1.1\r\n");
  EXPECT_EQ(ReadSome(guest.get(), 4), "http");
  SetPolicy(Custom({"api.example.test"}));
  ASSERT_TRUE(SendAll(guest.get(), "more"));
  SetPolicy(Custom({"other.example.test"}));
  EXPECT_TRUE(IsCut(guest.get()));
}

TEST_F(EgressUpdateTest, ALaterRequestIsHeldToThePolicyOfItsTime) {
  interceptor_ = &fake_;
  fake_.hosts = {};
  Start(Custom({"api.example.test"}));
  Fd guest = Connected("GET / HTTP/1.1\r\n");
  EXPECT_EQ(ReadSome(guest.get(), 4), "http");
  SetPolicy(Custom({"other.example.test"}));
  OnLoop([this] { fake_.hosts = {"api.example.test"}; });  // by the policy that was in force at the start
  ASSERT_TRUE(SendAll(guest.get(), "GET / HTTP/1.1\r\n"));
  EXPECT_TRUE(IsCut(guest.get()));
}

TEST_F(EgressUpdateTest, WhatAComingPolicyForbidsIsForbiddenAtOnce) {
  Start(Custom({"api.example.test", "other.example.test"}));
  auto [guest, server] = Pair(Hello(Sni("api.example.test")));
  auto [gone, gone_server] = Pair(Hello(Sni("other.example.test")));
  Tighten(Custom({"api.example.test", "more.example.test"}));
  EXPECT_TRUE(IsCut(gone.get()));
  EXPECT_TRUE(IsCut(gone_server.get()));
  EXPECT_TRUE(Works(guest.get(), server.get()));
  EXPECT_EQ(ExpectAlert(Hello(Sni("other.example.test"))).host, "other.example.test");
  // What only the coming one allows is not open yet, what both allow goes on.
  EXPECT_EQ(ExpectAlert(Hello(Sni("more.example.test"))).host, "more.example.test");
  auto [another, another_server] = Pair(Hello(Sni("api.example.test")));
  EXPECT_TRUE(Works(another.get(), another_server.get()));
}

TEST_F(EgressUpdateTest, WhatTwoPoliciesTreatDifferentlyWaitsForTheChange) {
  interceptor_ = &fake_;
  PolicyRef next = Ruled("api.example.test", "new");
  Start(Custom({"api.example.test"}));
  auto [open, open_server] = Pair(Hello(Sni("api.example.test")));
  Tighten(next);
  EXPECT_TRUE(IsCut(open.get()));
  Fd guest = Connected(Hello(Sni("api.example.test")));
  while (Counters().connections < 2) std::this_thread::yield();
  EXPECT_FALSE(ServerWasReached());
  SetPolicy(next);
  EXPECT_EQ(ReadSome(guest.get(), 3), "tls");  // intercepted, as the new one has it
  EXPECT_FALSE(ServerWasReached());
}

TEST_F(EgressUpdateTest, InterceptedRequestsAreHeldToAComingPolicy) {
  interceptor_ = &fake_;
  fake_.hosts = {"api.example.test"};
  Start(Custom({"api.example.test", "other.example.test"}));
  Fd guest = Connected("GET / HTTP/1.1\r\n");
  EXPECT_EQ(ReadSome(guest.get(), 9), "http  GET");
  Tighten(Custom({"api.example.test"}));
  ASSERT_TRUE(SendAll(guest.get(), "GET / HTTP/1.1\r\n"));
  EXPECT_EQ(ReadSome(guest.get(), 4), "more");
  OnLoop([this] { fake_.hosts = {"other.example.test"}; });
  ASSERT_TRUE(SendAll(guest.get(), "GET / HTTP/1.1\r\n"));
  EXPECT_TRUE(IsCut(guest.get()));
}

TEST_F(EgressUpdateTest, SeveralChangesAtOnceAllCount) {
  PolicyRef first = Custom({"api.example.test"}), second = Custom({"api.example.test", "other.example.test"});
  Start(Custom({"api.example.test", "other.example.test"}));
  Tighten(first);
  Tighten(second);
  ExpectAlert(Hello(Sni("other.example.test")));
  SetPolicy(first);  // the second is still on its way
  ExpectAlert(Hello(Sni("other.example.test")));
  SetPolicy(second);
  auto [guest, server] = Pair(Hello(Sni("other.example.test")));
  EXPECT_TRUE(Works(guest.get(), server.get()));
  // One that is given up leaves nothing behind.
  PolicyRef third = Custom({"api.example.test"});
  Tighten(third);
  OnLoop([&] { egress_->Relax(third); });
  auto [again, again_server] = Pair(Hello(Sni("other.example.test")));
  EXPECT_TRUE(Works(again.get(), again_server.get()));
}

TEST_F(EgressUpdateTest, AChangeThatFailedRefusesWhatWaited) {
  interceptor_ = &fake_;
  PolicyRef next = Ruled("api.example.test", "new");
  Start(Custom({"api.example.test", "other.example.test"}));
  Tighten(next);
  Fd waits = Connected(Hello(Sni("api.example.test")));
  while (Counters().connections < 1) std::this_thread::yield();
  OnLoop([this] { egress_->FailChange("no room"); });
  EXPECT_EQ(ReadSome(waits.get(), 7).size(), 7u);
  EXPECT_TRUE(Denials().back().reason.contains("no room")) << Denials().back().reason;
  EXPECT_TRUE(ExpectAlert(Hello(Sni("api.example.test"))).reason.contains("no room"));
  EXPECT_FALSE(ExpectAlert(Hello(Sni("other.example.test"))).reason.contains("no room"));
  SetPolicy(next);
  Fd guest = Connected(Hello(Sni("api.example.test")));
  EXPECT_EQ(ReadSome(guest.get(), 3), "tls");
}

TEST_F(EgressUpdateTest, TheChangeAppliesToAConnectionThatIsStillBeingRead) {
  Start(Custom({"api.example.test"}));
  std::string hello = Hello(Sni("api.example.test"));
  Fd guest = Connected(hello.substr(0, 20));
  while (Counters().connections == 0) std::this_thread::yield();
  SetPolicy(Custom({"other.example.test"}));
  ASSERT_TRUE(SendAll(guest.get(), hello.substr(20)));
  EXPECT_EQ(ReadSome(guest.get(), 7).size(), 7u);
  EXPECT_EQ(Denials().back().host, "api.example.test");
}

TEST_F(EgressUpdateTest, AllMachinesShareOneBudget) {
  config_.budget = std::make_shared<ConnectionBudget>(2);
  Start(Custom({"api.example.test"}));
  auto [a, a_server] = Pair(Hello(Sni("api.example.test")));
  auto [b, b_server] = Pair(Hello(Sni("api.example.test")));
  Fd third = Dial(tcp_port_);
  EXPECT_TRUE(IsCut(third.get()));
  EXPECT_EQ(Denials().back().reason, "too many connections of all sandboxes at once");
  a.Reset();
  a_server.Reset();
  b.Reset();
  b_server.Reset();
  while (OnLoop([this] { return config_.budget->used(); }) != 0) std::this_thread::yield();
}

TEST(ConnectionBudget, TheLastQuarterIsForMachinesWithFew) {
  ConnectionBudget budget(100);
  for (size_t i = 0; i < 75; ++i) ASSERT_TRUE(budget.Take(i));
  EXPECT_FALSE(budget.Take(75));
  for (size_t i = 0; i < 25; ++i) ASSERT_TRUE(budget.Take(i));
  EXPECT_FALSE(budget.Take(0));
  budget.Give();
  EXPECT_TRUE(budget.Take(0));
  EXPECT_GE(BudgetFromFdLimit()->limit(), 64u);
}

TEST_F(EgressUpdateTest, BandwidthIsBounded) {
  constexpr uint64_t kRate = 4 << 20;
  config_.bytes_per_second = kRate;
  Start(EgressMode::kAllowAll);
  SetTarget(Local(PortOf(server_.get())));
  auto [guest, server] = Pair("x");
  constexpr size_t kBytes = 4 << 20;
  auto started = std::chrono::steady_clock::now();
  std::thread writer([fd = server.get()] { EXPECT_TRUE(SendAll(fd, std::string(kBytes, 'x'))); });
  EXPECT_EQ(ReadSome(guest.get(), kBytes).size(), kBytes);
  double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  writer.join();
  // A burst of a tenth of a second is free, and the last chunk is not waited for.
  EXPECT_GE(seconds, static_cast<double>(kBytes) / kRate - 0.25);
}

TEST_F(EgressUpdateTest, AttemptsAreCountedNotRepeated) {
  Start(Custom({"api.example.test"}));
  for (int i = 0; i < 3; ++i) ExpectAlert(Hello(Sni("evil.test")));
  auto attempts = Attempts();
  ASSERT_EQ(attempts.size(), 1u);
  EXPECT_EQ(attempts[0].count, 3u);
  EXPECT_LE(attempts[0].first_ms, attempts[0].last_ms);
  EXPECT_EQ(Denials().back().count, 3u);
  SetPolicy(Custom({"evil.test"}));
  resolver_.Add("evil.test", "127.0.0.1");
  auto [guest, server] = Pair(Hello(Sni("evil.test")));
  attempts = Attempts();
  ASSERT_EQ(attempts.size(), 1u);
  EXPECT_TRUE(attempts[0].allowed);
}

TEST_F(EgressUpdateTest, AttemptsAreBounded) {
  Start(Custom({"api.example.test"}));
  OnLoop([] {});
  EgressState state;
  for (int i = 0; i < 2000; ++i) state.Note({.kind = "dns", .host = std::to_string(i) + ".test"});
  EXPECT_EQ(state.attempts.size(), kMaxAttempts);
}

}  // namespace
}  // namespace sandbar::egress::testing
