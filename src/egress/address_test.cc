#include "egress/address.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <ifaddrs.h>

#include "egress/egress.h"

namespace sandbar::egress {
namespace {

std::string Why(std::string_view text, std::vector<std::string> allow = {}) {
  auto address = ParseAddress(text);
  EXPECT_TRUE(address.has_value()) << text;
  EgressConfig config;
  config.allow_addresses = std::move(allow);
  return AddressDenied(address->bytes, config);
}

TEST(Address, ParsesOnlyTheCanonicalForms) {
  EXPECT_EQ(ToString(*ParseAddress("10.1.2.3")), "10.1.2.3");
  EXPECT_EQ(ToString(*ParseAddress("2001:DB8::1")), "2001:db8::1");
  EXPECT_EQ(*ParseAddress("::ffff:1.2.3.4"), *ParseAddress("1.2.3.4"));
  for (const char* bad : {"", "127.1", "0x7f.0.0.1", "0177.0.0.1", "2130706433", "1.2.3.4 ", "1.2.3", "::1%lo", "a"})
    EXPECT_FALSE(ParseAddress(bad)) << bad;
  EXPECT_FALSE(ParseAddress(std::string_view("1.2.3.4\0x", 9)));
}

TEST(Address, Endpoint) {
  EXPECT_EQ(ToString(*ParseEndpoint("1.2.3.4:53")), "1.2.3.4:53");
  EXPECT_EQ(ToString(*ParseEndpoint("[::1]:53")), "[::1]:53");
  for (const char* bad :
       {"1.2.3.4", "1.2.3.4:", "1.2.3.4:0", "1.2.3.4:65536", "::1:53", "[1.2.3.4]:53", "x:53", "1.2.3.4:5x"})
    EXPECT_FALSE(ParseEndpoint(bad)) << bad;
}

TEST(Address, Cidr) {
  Cidr c = *ParseCidr("10.0.0.0/8");
  EXPECT_TRUE(c.Contains(*ParseAddress("10.255.0.1")));
  EXPECT_FALSE(c.Contains(*ParseAddress("11.0.0.0")));
  EXPECT_TRUE(ParseCidr("172.16.0.0/12")->Contains(*ParseAddress("172.31.255.255")));
  EXPECT_FALSE(ParseCidr("172.16.0.0/12")->Contains(*ParseAddress("172.32.0.0")));
  EXPECT_TRUE(ParseCidr("192.0.2.7")->Contains(*ParseAddress("192.0.2.7")));
  EXPECT_FALSE(ParseCidr("192.0.2.7")->Contains(*ParseAddress("192.0.2.6")));
  EXPECT_TRUE(ParseCidr("0.0.0.0/0")->Contains(*ParseAddress("8.8.8.8")));
  EXPECT_FALSE(ParseCidr("::/0")->Contains(*ParseAddress("8.8.8.8")));
  EXPECT_FALSE(ParseCidr("0.0.0.0/0")->Contains(*ParseAddress("2600::1")));
  for (const char* bad : {"10.0.0.1/8", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/", "10.0.0.0/8x", "::/129", "/8"})
    EXPECT_FALSE(ParseCidr(bad)) << bad;
  EXPECT_NE(ParseCidr("10.0.0.1/8").error().message.find("10.0.0.0/8"), std::string::npos);
}

TEST(Address, DeniesEverythingThatIsNotGlobalUnicast) {
  struct Case {
    const char* address;
    const char* why;
  };
  for (const Case& c : {
           Case{"0.0.0.0", "this network"},
           {"0.1.2.3", "this network"},
           {"10.0.0.1", "private"},
           {"172.16.0.1", "private"},
           {"172.31.255.254", "private"},
           {"192.168.1.1", "private"},
           {"100.64.0.1", "carrier-grade NAT"},
           {"100.127.255.255", "carrier-grade NAT"},
           {"127.0.0.1", "loopback"},
           {"127.255.255.254", "loopback"},
           {"169.254.1.1", "link-local"},
           {"169.254.169.254", "cloud metadata"},
           {"168.63.129.16", "cloud metadata"},
           {"100.100.100.200", "cloud metadata"},
           {"192.0.0.192", "cloud metadata"},
           {"192.0.0.8", "protocol assignments"},
           {"192.0.2.1", "documentation"},
           {"198.51.100.1", "documentation"},
           {"203.0.113.1", "documentation"},
           {"192.88.99.1", "6to4 relay"},
           {"198.18.0.1", "benchmarking"},
           {"198.19.255.255", "benchmarking"},
           {"224.0.0.1", "multicast"},
           {"239.255.255.255", "multicast"},
           {"240.0.0.1", "reserved"},
           {"255.255.255.255", "broadcast"},
           {"::ffff:127.0.0.1", "loopback"},
           {"::ffff:a9fe:a9fe", "cloud metadata"},
           {"::", "unspecified"},
           {"::1", "loopback"},
           {"::7f00:1", "IPv4-compatible"},
           {"64:ff9b::7f00:1", "NAT64"},
           {"64:ff9b:1::1", "NAT64"},
           {"2002:7f00:1::", "6to4"},
           {"2001:0:1::1", "Teredo"},
           {"2001:db8::1", "documentation"},
           {"3fff::1", "documentation"},
           {"100::1", "discard-only"},
           {"fd00:ec2::254", "cloud metadata"},
           {"fc00::1", "unique local"},
           {"fdff::1", "unique local"},
           {"fe80::1", "link-local"},
           {"fec0::1", "site-local"},
           {"ff02::1", "multicast"},
           {"4000::1", "not global unicast"},
           {"5f00::1", "not global unicast"},
       })
    EXPECT_EQ(Why(c.address), c.why) << c.address;
}

TEST(Address, AllowsGlobalUnicast) {
  for (const char* ok : {"1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0",
                         "126.0.0.1", "128.0.0.1", "172.15.0.1", "172.32.0.1", "192.0.1.1", "198.17.0.1", "198.20.0.1",
                         "223.255.255.255", "2606:4700::1111", "2001:4860::8888", "2003::1"})
    EXPECT_EQ(Why(ok), "") << ok;
}

TEST(Address, OperatorMayAllow) {
  EXPECT_EQ(Why("10.1.2.3", {"10.1.0.0/16"}), "");
  EXPECT_EQ(Why("10.2.2.3", {"10.1.0.0/16"}), "private");
  EXPECT_EQ(Why("127.0.0.1", {"::1", "not a cidr", "127.0.0.1"}), "");
  EXPECT_EQ(Why("127.0.0.1", {"::/0"}), "loopback");
}

TEST(Address, EveryInterfaceAddressIsTheHosts) {
  ifaddrs* list = nullptr;
  ASSERT_EQ(getifaddrs(&list), 0);
  int seen = 0;
  for (ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || i->ifa_addr->sa_family != AF_INET) continue;
    sockaddr_storage ss{};
    memcpy(&ss, i->ifa_addr, sizeof(sockaddr_in));
    auto endpoint = FromSockaddr(ss);
    ASSERT_TRUE(endpoint.has_value());
    EXPECT_TRUE(IsHostAddress(endpoint->address)) << ToString(endpoint->address);
    ++seen;
  }
  freeifaddrs(list);
  EXPECT_GT(seen, 0);
  EXPECT_FALSE(IsHostAddress(*ParseAddress("8.8.8.8")));
  EXPECT_FALSE(IsHostAddress(*ParseAddress("192.0.2.254")));
}

TEST(Address, SockaddrKeepsTheFamilyThatWasChecked) {
  sockaddr_storage ss{};
  EXPECT_EQ(ToSockaddr({*ParseAddress("::ffff:8.8.8.8"), 443}, ss), sizeof(sockaddr_in));
  EXPECT_EQ(ss.ss_family, AF_INET);
  EXPECT_EQ(ToString(*FromSockaddr(ss)), "8.8.8.8:443");
  EXPECT_EQ(ToSockaddr({*ParseAddress("2600::1"), 443}, ss), sizeof(sockaddr_in6));
  EXPECT_EQ(ToString(*FromSockaddr(ss)), "[2600::1]:443");
  ss.ss_family = AF_UNIX;
  EXPECT_FALSE(FromSockaddr(ss));
}

}  // namespace
}  // namespace sandbar::egress
