// DNS under a custom policy: made-up addresses, no way out through queries, and what a connection to one means.
#include <algorithm>

#include "support/egress/custom_fixture.h"

namespace sandbar::egress::testing {
namespace {

using wire::DnsRcode;
using wire::testing::Hello;
using wire::testing::Sni;

class EgressDnsTest : public EgressCustomTest {
 protected:
  struct Answer {
    DnsRcode rcode = DnsRcode::kServFail;
    std::vector<std::string> addresses;
    std::string bytes;
  };
  Answer Ask(const std::string& name, uint16_t type = wire::kDnsTypeA) {
    wire::DnsQuery query;
    query.id = 7;
    query.name = *wire::DnsNameFromText(name);
    query.type = type;
    query.edns = true;
    query.udp_size = wire::kDnsEdnsUdp;
    Fd guest = Dial(dns_port_, SOCK_DGRAM);
    EXPECT_TRUE(SendAll(guest.get(), wire::EncodeDnsQuery(query)));
    Answer out;
    out.bytes.resize(4096);
    ssize_t n = ::recv(guest.get(), out.bytes.data(), out.bytes.size(), 0);
    EXPECT_GT(n, 0);
    out.bytes.resize(static_cast<size_t>(std::max<ssize_t>(n, 0)));
    auto head = wire::ParseDnsReply(out.bytes, query);
    EXPECT_TRUE(head.has_value());
    if (head) out.rcode = head->rcode;
    for (const auto& raw : wire::DnsAddresses(out.bytes, query, 16)) out.addresses.push_back(ToString(*FromRaw(raw)));
    return out;
  }
};

TEST_F(EgressDnsTest, AllowedNamesGetAnAddressOfTheirOwn) {
  Start(Custom({"*.example.test"}));
  Answer a = Ask("api.example.test"), b = Ask("other.example.test"), again = Ask("API.example.TEST");
  ASSERT_EQ(a.addresses.size(), 1u);
  ASSERT_EQ(b.addresses.size(), 1u);
  EXPECT_TRUE(a.addresses[0].starts_with("198.18.")) << a.addresses[0];
  EXPECT_NE(a.addresses, b.addresses);
  EXPECT_EQ(a.addresses, again.addresses);
  EXPECT_TRUE(resolver_.asked().empty());
}

TEST_F(EgressDnsTest, AComingPolicyDeniesNamesAtOnce) {
  Start(Custom({"api.example.test", "other.example.test"}));
  EXPECT_EQ(Ask("other.example.test").rcode, DnsRcode::kNoError);
  OnLoop([this] { egress_->Tighten(Custom({"api.example.test", "more.example.test"})); });
  EXPECT_EQ(Ask("other.example.test").rcode, DnsRcode::kNxDomain);
  EXPECT_EQ(Ask("more.example.test").rcode, DnsRcode::kNxDomain);
  EXPECT_EQ(Ask("api.example.test").addresses.size(), 1u);
}

TEST_F(EgressDnsTest, NothingIsAskedOutsideThatAComingPolicyWouldNotAsk) {
  Start(EgressMode::kAllowAll);
  OnLoop([this] { egress_->Tighten(Custom({"api.example.test"})); });
  EXPECT_EQ(Ask("other.example.test").rcode, DnsRcode::kNxDomain);
  EXPECT_TRUE(Ask("api.example.test").addresses.at(0).starts_with("198.18."));
  EXPECT_TRUE(resolver_.asked().empty());
}

TEST_F(EgressDnsTest, OtherTypesAreEmptyAndOtherNamesAreRefusedWithTheReason) {
  Start(Custom({"api.example.test"}));
  constexpr uint16_t kTxt = 16, kPtr = 12, kHttps = 65;
  for (uint16_t type : {wire::kDnsTypeAaaa, kTxt, kHttps, wire::kDnsTypeAny}) {
    Answer answer = Ask("api.example.test", type);
    EXPECT_EQ(answer.rcode, DnsRcode::kNoError) << type;
    EXPECT_TRUE(answer.addresses.empty());
  }
  Answer no = Ask("other.example.test");
  EXPECT_EQ(no.rcode, DnsRcode::kNxDomain);
  EXPECT_TRUE(no.bytes.contains(R"(add "other.example.test" to allow)"));
  EXPECT_EQ(Ask("1.2.0.192.in-addr.arpa", kPtr).rcode, DnsRcode::kNxDomain);
  Denial denial = Denials().front();
  EXPECT_EQ(denial.kind, "dns");
  EXPECT_EQ(denial.host, "other.example.test");
  EXPECT_TRUE(resolver_.asked().empty());
}

TEST_F(EgressDnsTest, NothingTheGuestChoseGoesUpstreamBeforeAPermittedConnect) {
  Start(Custom({"api.example.test", "*.wild.test"}));
  for (int i = 0; i < 50; ++i) {
    std::string secret = "s3cret-" + std::to_string(i);
    EXPECT_EQ(Ask(secret + ".attacker.test").rcode, DnsRcode::kNxDomain);
    EXPECT_EQ(Ask(secret + ".wild.test").rcode, DnsRcode::kNoError);
    Ask(secret + ".wild.test", 16);
  }
  EXPECT_TRUE(resolver_.asked().empty());
  auto [guest, server] = Pair(Hello(Sni("api.example.test")));
  EXPECT_EQ(resolver_.asked(), std::vector<std::string>{"api.example.test"});
}

TEST_F(EgressDnsTest, SubnetsOpenDnsOnlyIfTheOperatorSaysSo) {
  Start(Custom({}, {"127.0.0.0/8"}));
  EXPECT_EQ(Ask("api.example.test").rcode, DnsRcode::kNxDomain);
  EXPECT_TRUE(resolver_.asked().empty());
  OnLoop([this] { config_.dns_for_subnets = true; });
  EXPECT_EQ(Ask("api.example.test").addresses, std::vector<std::string>{"127.0.0.1"});
  EXPECT_EQ(Ask("api.example.test", 16).rcode, DnsRcode::kNxDomain);
}

TEST_F(EgressDnsTest, AConnectionToAMadeUpAddressIsDecidedByItsSni) {
  Start(Custom({"*.example.test"}));
  uint16_t port = PortOf(server_.get());
  SetTarget(Endpoint{*ParseAddress(Ask("api.example.test").addresses.at(0)), port});
  auto [guest, server] = Pair(Hello(Sni("other.example.test")));
  EXPECT_EQ(resolver_.asked(), std::vector<std::string>{"other.example.test"});
  Denial denial = ExpectAlert(Hello(Sni("evil.test")));
  EXPECT_EQ(denial.host, "evil.test");
}

TEST_F(EgressDnsTest, MadeUpAddressesStayGoodAfterASwitchToAllowAll) {
  Start(Custom({"*.example.test"}));
  uint16_t port = PortOf(server_.get());
  SetTarget(Endpoint{*ParseAddress(Ask("api.example.test").addresses.at(0)), port});
  SetMode(EgressMode::kAllowAll);
  Fd guest = Dial(tcp_port_);
  Fd server = AcceptOne(server_.get());
  EXPECT_TRUE(Works(guest.get(), server.get()));
  EXPECT_EQ(resolver_.asked(), std::vector<std::string>{"api.example.test"});
}

TEST_F(EgressDnsTest, OtherProtocolsByNameNeedTheirAddressOpen) {
  Start(Custom({"api.example.test"}));
  SetTarget(Endpoint{*ParseAddress(Ask("api.example.test").addresses.at(0)), PortOf(server_.get())});
  Fd refused = Connected("SSH-2.0-x\r\n");
  EXPECT_EQ(ReadToEnd(refused.get()).error, ECONNRESET);
  EXPECT_EQ(Denials().back().hint, R"(allow the addresses of "api.example.test" with subnets.allow)");
  EXPECT_TRUE(resolver_.asked().empty());
  SetPolicy(Custom({"api.example.test"}, {"127.0.0.0/8"}));
  auto [guest, server] = Pair("SSH-2.0-x\r\n");
  EXPECT_TRUE(Works(guest.get(), server.get()));
  SetPolicy(Custom({"api.example.test"}, {"192.0.2.0/24"}));
  EXPECT_EQ(ReadToEnd(guest.get()).error, ECONNRESET);
}

TEST_F(EgressDnsTest, AllowAllRemembersWhichNameAnAddressWasFor) {
  Start(EgressMode::kAllowAll);
  EXPECT_EQ(Ask("api.example.test").addresses, std::vector<std::string>{"127.0.0.1"});
  SetTarget(Local(PortOf(server_.get())));
  auto [guest, server] = Pair("SSH-2.0-x\r\n");
  auto [tls, tls_server] = Pair(Hello(Sni("other.example.test")));
  auto attempts = Attempts();
  auto find = [&](const std::string& kind) {
    return std::ranges::find_if(attempts, [&](const Attempt& a) { return a.kind == kind; });
  };
  ASSERT_NE(find("tcp"), attempts.end());
  EXPECT_EQ(find("tcp")->host, "api.example.test");
  EXPECT_EQ(find("tcp")->address, "127.0.0.1");
  ASSERT_NE(find("tls"), attempts.end());
  EXPECT_EQ(find("tls")->host, "other.example.test");
}

}  // namespace
}  // namespace sandbar::egress::testing
