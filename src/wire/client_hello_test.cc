#include "wire/client_hello.h"

#include <gtest/gtest.h>

#include "support/wire/client_hello_fixture.h"

namespace sandbar::wire {
namespace {

using namespace testing;

TEST(ClientHello, NameAlpnAndEch) {
  auto p = ParseClientHello(Hello(Sni("Api.Example.test") + Alpn({"h2", "http/1.1"})));
  ASSERT_TRUE(p.has_value()) << p.error().message;
  ASSERT_TRUE(p->hello);
  EXPECT_EQ(p->hello->server_name, "Api.Example.test");
  EXPECT_EQ(p->hello->alpn, (std::vector<std::string>{"h2", "http/1.1"}));
  EXPECT_FALSE(p->hello->ech);
  p = ParseClientHello(Hello(Sni("a.test") + Extension(0xfe0d, "whatever")));
  ASSERT_TRUE(p && p->hello);
  EXPECT_TRUE(p->hello->ech);
  p = ParseClientHello(Hello(Extension(43, "x")));
  ASSERT_TRUE(p && p->hello);
  EXPECT_FALSE(p->hello->server_name);
}

TEST(ClientHello, NoExtensionsAtAll) {
  std::string body =
      Number(0x0301, 2) + std::string(32, 'r') + Vector(1, "") + Vector(2, Number(0x2f, 2)) + Vector(1, Number(0, 1));
  auto p = ParseClientHello(Records(Number(1, 1) + Vector(3, body)));
  ASSERT_TRUE(p && p->hello);
  EXPECT_FALSE(p->hello->server_name);
}

TEST(ClientHello, EveryCutIsIncompleteAndAsksForMore) {
  const std::string whole = Records(Message(Sni("split.example.test")), 40);
  for (size_t n = 0; n < whole.size(); ++n) {
    auto p = ParseClientHello(std::string_view(whole).substr(0, n));
    ASSERT_TRUE(p.has_value()) << n << ": " << p.error().message;
    ASSERT_FALSE(p->hello) << n;
    ASSERT_GT(p->need, n);
    ASSERT_LE(p->need, whole.size());
  }
  auto p = ParseClientHello(whole + "early data");
  ASSERT_TRUE(p && p->hello);
  EXPECT_EQ(p->hello->server_name, "split.example.test");
}

TEST(ClientHello, SplitOverManyRecords) {
  for (size_t each : {1UL, 3UL, 7UL, 100UL}) {
    auto p = ParseClientHello(Records(Message(Sni("a.test")), each));
    ASSERT_TRUE(p && p->hello) << each;
    EXPECT_EQ(p->hello->server_name, "a.test");
  }
}

TEST(ClientHello, BigOnesUpToTheBound) {
  std::string big = Sni("big.test");
  for (size_t i = 0; i < 3; ++i) big += Extension(0x1000 + i, std::string(20000, 'p'));
  auto p = ParseClientHello(Hello(big));
  ASSERT_TRUE(p && p->hello);
  EXPECT_EQ(p->hello->server_name, "big.test");
  auto too_long = ParseClientHello("\x16\x03\x01" + Vector(2, Number(1, 1) + Number(kMaxClientHello + 1, 3)));
  ASSERT_FALSE(too_long.has_value());
  EXPECT_EQ(too_long.error().code, Code::kTooLarge);
  auto crumbs = ParseClientHello(Records(Message(Sni(std::string(600, 'a'))), 1));
  ASSERT_FALSE(crumbs.has_value());
  EXPECT_EQ(crumbs.error().code, Code::kTooLarge);
}

TEST(ClientHello, NamesAreHandedOverAsSent) {
  using namespace std::string_literals;
  auto p = ParseClientHello(Hello(Sni("a.test\0.evil.test"s)));
  ASSERT_TRUE(p && p->hello);
  EXPECT_EQ(p->hello->server_name, "a.test\0.evil.test"s);  // the NUL is for the canonical form to refuse
}

TEST(ClientHello, WhatCanBeReadTwoWaysIsRefused) {
  const std::string name = Number(0, 1) + Vector(2, "a.test");
  for (const std::string& bad : {
           Sni("a.test") + Sni("b.test"),                                // twice
           Extension(0, Vector(2, name + name)),                         // two names
           Extension(0, Vector(2, name) + "x"),                          // bytes behind the list
           Extension(0, Vector(2, Number(1, 1) + Vector(2, "a.test"))),  // unknown kind
           Extension(0, Vector(2, Number(0, 1) + Vector(2, ""))),        // empty
           Extension(0, ""),
           Extension(16, "\x01"),
           std::string("\x00\x00\xff\xff", 4),
       }) {
    auto p = ParseClientHello(Hello(bad));
    ASSERT_FALSE(p.has_value());
    EXPECT_EQ(p.error().code, Code::kProtocol);
  }
  EXPECT_FALSE(ParseClientHello(Records(Message(Sni("a.test")) + Message(Sni("b.test")))));
}

TEST(ClientHello, NotTls) {
  EXPECT_FALSE(ParseClientHello("GET / HTTP/1.1\r\n"));
  EXPECT_FALSE(ParseClientHello(std::string("\x16\x02\x01\x00\x05", 5)));
  EXPECT_FALSE(ParseClientHello(std::string("\x16\x03\x01\x00\x00", 5)));
  EXPECT_FALSE(ParseClientHello(std::string("\x16\x03\x01\x40\x01", 5)));
  EXPECT_FALSE(ParseClientHello(std::string("\x16\x03\x01\x00\x05\x02", 6)));  // a ServerHello
  EXPECT_TRUE(ParseClientHello("").has_value());
}

}  // namespace
}  // namespace sandbar::wire
