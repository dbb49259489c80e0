#include "egress/dns_relay.h"

#include <poll.h>

#include <algorithm>
#include <set>
#include <vector>

#include "egress/resolver.h"
#include "support/egress/egress_fixture.h"
#include "wire/dns.h"

namespace sandbar::egress::testing {
namespace {

using wire::DnsQuery;
using wire::DnsRcode;

TEST(ChooseResolver, ConfiguredFirst) {
  EXPECT_EQ(ToString(ChooseResolver("127.0.0.53:5353", "nameserver 1.1.1.1\n")->endpoint), "127.0.0.53:5353");
  EXPECT_FALSE(ChooseResolver("nonsense", "nameserver 1.1.1.1\n"));
}

TEST(ChooseResolver, ResolvConf) {
  EXPECT_EQ(ToString(ChooseResolver("", "# x\nsearch a.b\nnameserver\t 9.9.9.9 \nnameserver 1.1.1.1\n")->endpoint),
            "9.9.9.9:53");
  EXPECT_EQ(ToString(ChooseResolver("", "nameserver fe80::1%eth0\nnameserver ::1")->endpoint), "[::1]:53");
  EXPECT_FALSE(ChooseResolver("", "nameserver\nnameservers 1.1.1.1\noptions ndots:1"));
  EXPECT_FALSE(ChooseResolver("", ""));
}

DnsQuery Query(std::string_view name, uint16_t type = wire::kDnsTypeA, bool edns = false) {
  DnsQuery q;
  q.id = 0x4242;
  q.name = *wire::DnsNameFromText(name);
  q.type = type;
  q.edns = edns;
  return q;
}

class DnsRelayTest : public EgressTest {
 protected:
  DnsRelayTest() : upstream_(BoundSocket(SOCK_DGRAM)) {
    SetTimeouts(upstream_.get());
    config_.resolver = "127.0.0.1:" + std::to_string(PortOf(upstream_.get()));
  }

  struct Asked {
    DnsQuery query;
    sockaddr_storage from{};
    socklen_t len = sizeof(sockaddr_storage);
  };
  Asked UpstreamReceives() {
    Asked asked;
    char buffer[2048];
    ssize_t n =
        ::recvfrom(upstream_.get(), buffer, sizeof(buffer), 0, reinterpret_cast<sockaddr*>(&asked.from), &asked.len);
    EXPECT_GT(n, 0);
    auto query = wire::ParseDnsQuery({buffer, static_cast<size_t>(std::max<ssize_t>(n, 0))});
    EXPECT_TRUE(query.has_value());
    if (query) asked.query = *query;
    return asked;
  }
  void UpstreamSends(const Asked& to, std::string bytes) {
    ::sendto(upstream_.get(), bytes.data(), bytes.size(), 0, reinterpret_cast<const sockaddr*>(&to.from), to.len);
  }
  bool UpstreamWasAsked() {
    pollfd p{upstream_.get(), POLLIN, 0};
    return ::poll(&p, 1, 0) > 0;
  }
  std::string Receive(int guest) {
    std::string in(4096, '\0');
    ssize_t n = ::recv(guest, in.data(), in.size(), 0);
    EXPECT_GT(n, 0) << strerror(errno);
    in.resize(n < 0 ? 0 : static_cast<size_t>(n));
    return in;
  }
  Fd Guest() { return Dial(dns_port_, SOCK_DGRAM); }

  Fd upstream_;
};

TEST_F(DnsRelayTest, DenyAllSaysNoAndAsksNobody) {
  Start(EgressMode::kDenyAll);
  Fd guest = Guest();
  DnsQuery q = Query("registry.example.org", wire::kDnsTypeA, true);
  SendAll(guest.get(), wire::EncodeDnsQuery(q));
  std::string reply = Receive(guest.get());
  auto head = wire::ParseDnsReply(reply, q);
  ASSERT_TRUE(head.has_value());
  EXPECT_EQ(head->rcode, DnsRcode::kNxDomain);
  EXPECT_TRUE(reply.contains("deny-all"));
  EXPECT_FALSE(UpstreamWasAsked());
  auto denials = Denials();
  ASSERT_EQ(denials.size(), 1u);
  EXPECT_EQ(denials[0].kind, "dns");
  EXPECT_EQ(denials[0].target, "registry.example.org");
}

TEST_F(DnsRelayTest, AllowAllRelaysWithItsOwnId) {
  Start(EgressMode::kAllowAll);
  Fd guest = Guest();
  DnsQuery q = Query("Registry.example.org");
  SendAll(guest.get(), wire::EncodeDnsQuery(q));
  Asked asked = UpstreamReceives();
  EXPECT_EQ(asked.query.name, q.name);
  // Forged first: wrong id, then another name. Neither may reach the guest.
  DnsQuery forged = asked.query;
  forged.id = static_cast<uint16_t>(forged.id + 1);
  UpstreamSends(asked, wire::EncodeDnsError(forged, DnsRcode::kRefused, 0, ""));
  forged = asked.query;
  forged.name = *wire::DnsNameFromText("other.example.org");
  UpstreamSends(asked, wire::EncodeDnsError(forged, DnsRcode::kRefused, 0, ""));
  std::string real = wire::EncodeDnsError(asked.query, DnsRcode::kNoError, 0, "");
  UpstreamSends(asked, real + "records");
  std::string reply = Receive(guest.get());
  auto head = wire::ParseDnsReply(reply, q);  // has the guest's id again
  ASSERT_TRUE(head.has_value());
  EXPECT_EQ(head->rcode, DnsRcode::kNoError);
  EXPECT_TRUE(reply.ends_with("records"));
}

TEST_F(DnsRelayTest, IdsAndPortsDiffer) {
  Start(EgressMode::kAllowAll);
  Fd guest = Guest();
  std::set<uint16_t> ids, ports;
  constexpr int kQueries = 20;
  for (int i = 0; i < kQueries; ++i) {
    SendAll(guest.get(), wire::EncodeDnsQuery(Query("a.example")));
    Asked asked = UpstreamReceives();
    ids.insert(asked.query.id);
    ports.insert(FromSockaddr(asked.from)->port);
  }
  EXPECT_GE(ids.size(), size_t{kQueries - 2});
  EXPECT_EQ(ports.size(), size_t{kQueries});  // all outstanding at once, so all distinct
}

TEST_F(DnsRelayTest, Ipv6IsAnsweredEmptyHere) {
  Start(EgressMode::kAllowAll);
  Fd guest = Guest();
  DnsQuery q = Query("example.org", wire::kDnsTypeAaaa);
  SendAll(guest.get(), wire::EncodeDnsQuery(q));
  auto head = wire::ParseDnsReply(Receive(guest.get()), q);
  ASSERT_TRUE(head.has_value());
  EXPECT_EQ(head->rcode, DnsRcode::kNoError);
  EXPECT_FALSE(UpstreamWasAsked());
}

TEST_F(DnsRelayTest, TruncatedUpstreamIsAskedByTcpAndBigAnswersGoByTcp) {
  // The fake resolver: UDP on upstream_, TCP on the same port, which somebody else may have.
  Fd tcp(::socket(AF_INET, SOCK_STREAM, 0));
  for (;;) {
    sockaddr_storage ss{};
    socklen_t len = ToSockaddr(Local(PortOf(upstream_.get())), ss);
    if (::bind(tcp.get(), reinterpret_cast<sockaddr*>(&ss), len) == 0) break;
    ASSERT_EQ(errno, EADDRINUSE);
    upstream_ = BoundSocket(SOCK_DGRAM);
    SetTimeouts(upstream_.get());
    config_.resolver = "127.0.0.1:" + std::to_string(PortOf(upstream_.get()));
  }
  ASSERT_EQ(::listen(tcp.get(), 8), 0);
  Start(EgressMode::kAllowAll);

  auto serve = [&] {
    Asked asked = UpstreamReceives();
    UpstreamSends(asked, wire::EncodeDnsTruncated(asked.query));
    Fd conn = AcceptOne(tcp.get());
    std::string head = ReadSome(conn.get(), 2);
    size_t n = static_cast<size_t>(static_cast<uint8_t>(head.at(0)) << 8 | static_cast<uint8_t>(head.at(1)));
    auto query = wire::ParseDnsQuery(ReadSome(conn.get(), n));
    ASSERT_TRUE(query.has_value());
    std::string answer = wire::EncodeDnsError(*query, DnsRcode::kNoError, 0, "") + std::string(3000, 'r');
    std::string framed{static_cast<char>(answer.size() >> 8), static_cast<char>(answer.size() & 0xff)};
    SendAll(conn.get(), framed + answer);
  };
  DnsQuery q = Query("big.example", wire::kDnsTypeA, true);
  Fd guest = Guest();
  SendAll(guest.get(), wire::EncodeDnsQuery(q));
  serve();
  auto head = wire::ParseDnsReply(Receive(guest.get()), q);
  ASSERT_TRUE(head.has_value());
  EXPECT_TRUE(head->truncated);

  SetTarget(Endpoint{*ParseAddress(kGuestResolver), 53});
  Fd stream = Dial(tcp_port_);
  std::string bytes = wire::EncodeDnsQuery(q);
  std::string framed{0, static_cast<char>(bytes.size())};
  SendAll(stream.get(), framed + bytes);
  serve();
  std::string size = ReadSome(stream.get(), 2);
  size_t n = static_cast<size_t>(static_cast<uint8_t>(size.at(0)) << 8 | static_cast<uint8_t>(size.at(1)));
  std::string whole = ReadSome(stream.get(), n);
  EXPECT_TRUE(wire::ParseDnsReply(whole, q));
  EXPECT_TRUE(whole.ends_with("rrrr"));
  EXPECT_GT(whole.size(), 3000u);
}

TEST_F(DnsRelayTest, TcpUnderDenyAllSaysNo) {
  Start(EgressMode::kDenyAll);
  SetTarget(Endpoint{*ParseAddress(kGuestResolver), 53});
  Fd stream = Dial(tcp_port_);
  DnsQuery q = Query("x.example", wire::kDnsTypeA, true);
  std::string bytes = wire::EncodeDnsQuery(q);
  for (int i = 0; i < 2; ++i) {  // the connection serves more than one query
    std::string framed{0, static_cast<char>(bytes.size())};
    SendAll(stream.get(), framed + bytes);
    std::string size = ReadSome(stream.get(), 2);
    ASSERT_EQ(size.size(), 2u);
    auto head = wire::ParseDnsReply(ReadSome(stream.get(), static_cast<uint8_t>(size[1])), q);
    ASSERT_TRUE(head.has_value());
    EXPECT_EQ(head->rcode, DnsRcode::kNxDomain);
  }
  std::string too_long{'\x7f', '\x7f'};
  SendAll(stream.get(), too_long);
  EXPECT_EQ(ReadToEnd(stream.get()).bytes, "");
}

TEST_F(DnsRelayTest, DeadUpstreamIsServfail) {
  config_.dns_timeout = std::chrono::milliseconds(100);
  Start(EgressMode::kAllowAll);
  Fd guest = Guest();
  DnsQuery q = Query("slow.example", wire::kDnsTypeA, true);
  SendAll(guest.get(), wire::EncodeDnsQuery(q));
  auto head = wire::ParseDnsReply(Receive(guest.get()), q);
  ASSERT_TRUE(head.has_value());
  EXPECT_EQ(head->rcode, DnsRcode::kServFail);
  UpstreamReceives();
  UpstreamReceives();  // it tried twice, from two sockets
}

TEST_F(DnsRelayTest, AnswerThatArrivesAfterTheSwitchIsDenied) {
  Start(EgressMode::kAllowAll);
  Fd guest = Guest();
  DnsQuery q = Query("late.example");
  SendAll(guest.get(), wire::EncodeDnsQuery(q));
  Asked asked = UpstreamReceives();
  SetMode(EgressMode::kDenyAll);
  UpstreamSends(asked, wire::EncodeDnsError(asked.query, DnsRcode::kNoError, 0, ""));
  auto head = wire::ParseDnsReply(Receive(guest.get()), q);
  ASSERT_TRUE(head.has_value());
  EXPECT_EQ(head->rcode, DnsRcode::kNxDomain);
}

TEST_F(DnsRelayTest, GarbageIsFormErrAndRepliesAreIgnored) {
  Start(EgressMode::kAllowAll);
  Fd guest = Guest();
  std::string reply = wire::EncodeDnsError(Query("a.b"), DnsRcode::kNoError, 0, "");
  SendAll(guest.get(), reply);                 // ignored
  SendAll(guest.get(), "x");                   // ignored
  SendAll(guest.get(), std::string(3000, 0));  // longer than any query
  std::string answer = Receive(guest.get());
  EXPECT_EQ(answer.size(), 12u);
  EXPECT_EQ(answer[3] & 0xf, 1);
  EXPECT_FALSE(UpstreamWasAsked());
}

TEST_F(DnsRelayTest, RateIsBounded) {
  config_.dns_per_second = 20;
  Start(EgressMode::kDenyAll);
  Fd guest = Guest();
  auto started = std::chrono::steady_clock::now();
  for (int i = 0; i < 500; ++i) SendAll(guest.get(), wire::EncodeDnsQuery(Query("flood.example")));
  int answered = 0;
  timeval tv{.tv_sec = 0, .tv_usec = 300000};
  ::setsockopt(guest.get(), SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
  char buffer[512];
  while (answered < 60 && ::recv(guest.get(), buffer, sizeof(buffer), 0) > 0) ++answered;
  double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  EXPECT_GE(answered, 20);
  EXPECT_LE(answered, 20 + 20 * elapsed + 1);
}

TEST_F(DnsRelayTest, OutstandingIsBounded) {
  config_.max_dns_outstanding = 4;
  Start(EgressMode::kAllowAll);
  Fd guest = Guest();
  for (int i = 0; i < 20; ++i) SendAll(guest.get(), wire::EncodeDnsQuery(Query("a.example")));
  std::vector<Asked> asked;
  for (int i = 0; i < 4; ++i) asked.push_back(UpstreamReceives());
  pollfd p{upstream_.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&p, 1, 200), 0);  // no fifth before an answer
  UpstreamSends(asked[0], wire::EncodeDnsError(asked[0].query, DnsRcode::kNoError, 0, ""));
  UpstreamReceives();
}

TEST_F(DnsRelayTest, CloseWithQueriesOutstanding) {
  Start(EgressMode::kAllowAll);
  Fd guest = Guest();
  for (int i = 0; i < 10; ++i) SendAll(guest.get(), wire::EncodeDnsQuery(Query("a.example")));
  UpstreamReceives();
  Close();
}

}  // namespace
}  // namespace sandbar::egress::testing
