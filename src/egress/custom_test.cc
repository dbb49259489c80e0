// Custom policies on real sockets: TLS by SNI, addresses by CIDR, PostgreSQL, what is refused and how it is said.
#include "support/egress/custom_fixture.h"

namespace sandbar::egress::testing {
namespace {

using namespace std::string_literals;
using wire::testing::Alpn;
using wire::testing::Ech;
using wire::testing::Extension;
using wire::testing::Hello;
using wire::testing::Message;
using wire::testing::Records;
using wire::testing::Sni;

TEST_F(EgressCustomTest, TheNameIsDialledWhateverAddressTheGuestPicked) {
  Start(Custom({"*.example.test"}));
  std::string hello = Hello(Sni("API.Example.test.") + Alpn({"h2"}));
  auto [guest, server] = Pair(hello + "early");
  EXPECT_TRUE(Works(guest.get(), server.get()));
  EXPECT_EQ(resolver_.asked(), std::vector<std::string>{"api.example.test"});
  EXPECT_EQ(Counters().egress_bytes, hello.size() + 9);
  EXPECT_EQ(Counters().ingress_bytes, 4u);
  auto attempts = Attempts();
  ASSERT_EQ(attempts.size(), 1u);
  EXPECT_EQ(attempts[0].kind, "tls");
  EXPECT_EQ(attempts[0].host, "api.example.test");
  EXPECT_TRUE(attempts[0].allowed);
}

TEST_F(EgressCustomTest, AnotherNameIsToldNoAndNobodyIsAsked) {
  Start(Custom({"api.example.test"}));
  Denial denial = ExpectAlert(Hello(Sni("Other.example.test")));
  EXPECT_EQ(denial.kind, "tls");
  EXPECT_EQ(denial.host, "other.example.test");
  EXPECT_EQ(denial.rule, "no rule allows it");
  EXPECT_EQ(denial.hint, R"(add "other.example.test" to allow)");
  EXPECT_TRUE(resolver_.asked().empty());
  auto attempts = Attempts();
  ASSERT_EQ(attempts.size(), 1u);
  EXPECT_FALSE(attempts[0].allowed);
  EXPECT_EQ(attempts[0].host, "other.example.test");
}

TEST_F(EgressCustomTest, SplitOverSegmentsAndRecords) {
  Start(Custom({"api.example.test"}));
  std::string hello = Records(Message(Sni("api.example.test")), 20);
  Fd guest = Dial(tcp_port_);
  int on = 1;
  ::setsockopt(guest.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  for (char c : hello) ASSERT_TRUE(SendAll(guest.get(), {&c, 1}));
  Fd server = AcceptOne(server_.get());
  EXPECT_EQ(ReadSome(server.get(), hello.size()), hello);
  // The same split cannot smuggle another name past the policy.
  ExpectAlert(Records(Message(Sni("other.example.test")), 3));
}

TEST_F(EgressCustomTest, NamesThatAreNoneAreRefused) {
  Start(Custom({"*", "api.example.test"}));
  EXPECT_TRUE(ExpectAlert(Hello(Alpn({"h2"}))).reason.contains("SNI"));
  for (const std::string& name : {"api.example.test\0.x"s, "127.0.0.1"s, "2130706433"s, "0x7f.1"s, "a b"s, "."s,
                                  "api..test"s, std::string(70, 'a') + ".test"}) {
    Denial denial = ExpectAlert(Hello(Sni(name)));
    EXPECT_TRUE(denial.reason.contains("server name that is none")) << denial.reason;
  }
  EXPECT_TRUE(resolver_.asked().empty());
}

TEST_F(EgressCustomTest, InternationalNamesHaveOneForm) {
  resolver_.Add("xn--bcher-kva.test", "127.0.0.1");
  Start(Custom({"bücher.test"}));
  auto [guest, server] = Pair(Hello(Sni("XN--BCHER-KVA.test")));
  EXPECT_TRUE(Works(guest.get(), server.get()));
  EXPECT_EQ(resolver_.asked(), std::vector<std::string>{"xn--bcher-kva.test"});
}

TEST_F(EgressCustomTest, EncryptedHelloIsRefusedUnlessTheOperatorSaysSo) {
  Start(Custom({"api.example.test"}));
  Denial denial = ExpectAlert(Hello(Sni("api.example.test") + Ech()));
  EXPECT_TRUE(denial.reason.contains("Encrypted Client Hello"));
  EXPECT_TRUE(denial.hint.contains("allow_ech"));
  OnLoop([this] { config_.allow_ech = true; });
  auto [guest, server] = Pair(Hello(Sni("api.example.test") + Ech()));
  EXPECT_TRUE(Works(guest.get(), server.get()));
}

TEST_F(EgressCustomTest, BigHelloPassesTooBigDoesNot) {
  Start(Custom({"api.example.test"}));
  std::string padding;
  for (size_t i = 0; i < 3; ++i) padding += Extension(0x1000 + i, std::string(20000, 'p'));
  auto [guest, server] = Pair(Hello(padding + Sni("api.example.test")));
  EXPECT_TRUE(Works(guest.get(), server.get()));
  Fd rude = Connected("\x16\x03\x01\x40\x00\x01\x01\x00\x01"s + std::string(16384 - 4, 'x'));
  EXPECT_EQ(ReadSome(rude.get(), 7).size(), 7u);
  EXPECT_TRUE(Denials().back().reason.contains("too long"));
}

TEST_F(EgressCustomTest, AHelloThatNeverEndsIsDroppedAtTheDeadline) {
  config_.first_bytes_timeout = std::chrono::milliseconds(200);
  Start(Custom({"api.example.test"}));
  std::string hello = Hello(Sni("api.example.test"));
  Denial denial = ExpectAlert(hello.substr(0, hello.size() - 1));
  EXPECT_TRUE(denial.reason.contains("took too long")) << denial.reason;
}

TEST_F(EgressCustomTest, DribblingDoesNotMoveTheDeadline) {
  config_.first_bytes_timeout = std::chrono::milliseconds(300);
  Start(Custom({"api.example.test"}));
  Fd guest = Dial(tcp_port_);
  std::string hello = Hello(Extension(0x1000, std::string(4000, 'p')) + Sni("api.example.test"));
  size_t sent = 0;
  for (pollfd p{guest.get(), POLLIN, 0}; sent < hello.size() && ::poll(&p, 1, 20) == 0; ++sent)
    ASSERT_TRUE(SendAll(guest.get(), {&hello[sent], 1}));
  EXPECT_LT(sent, hello.size());
  EXPECT_EQ(ReadSome(guest.get(), 7).size(), 7u);
  EXPECT_TRUE(Denials().back().reason.contains("took too long"));
}

TEST_F(EgressCustomTest, AFloodOfSilentConnectionsPasses) {
  config_.max_half_open = 8;
  config_.first_bytes_timeout = std::chrono::milliseconds(300);
  Start(Custom({"api.example.test"}));
  std::vector<Fd> flood;
  for (int i = 0; i < 100; ++i) flood.push_back(Dial(tcp_port_));
  for (Fd& fd : flood) EXPECT_EQ(ReadToEnd(fd.get()).error, ECONNRESET);
  EXPECT_EQ(Counters().denied, 100u);
  auto [guest, server] = Pair(Hello(Sni("api.example.test")));
  EXPECT_TRUE(Works(guest.get(), server.get()));
}

TEST_F(EgressCustomTest, SilenceAndOtherProtocolsAreReset) {
  config_.first_bytes_timeout = std::chrono::milliseconds(200);
  Start(Custom({"api.example.test"}));
  Fd silent = Dial(tcp_port_);
  EXPECT_EQ(ReadToEnd(silent.get()).error, ECONNRESET);
  Denial denial = Denials().back();
  EXPECT_EQ(denial.kind, "tcp");
  EXPECT_TRUE(denial.reason.contains("speak first")) << denial.reason;
  EXPECT_EQ(denial.hint, R"(add "203.0.113.9/32" to subnets.allow)");
  Fd ssh = Connected("SSH-2.0-x\r\n");
  EXPECT_EQ(ReadToEnd(ssh.get()).error, ECONNRESET);
  EXPECT_FALSE(ServerWasReached());
}

TEST_F(EgressCustomTest, SubnetsOpenAddressesWithoutReading) {
  Start(Custom({}, {"127.0.0.0/8"}, {"127.0.0.2/32"}));
  SetTarget(Local(PortOf(server_.get())));
  Fd guest = Dial(tcp_port_);
  Fd server = AcceptOne(server_.get());
  ASSERT_TRUE(SendAll(server.get(), "220 hello"));  // the server speaks first
  EXPECT_EQ(ReadSome(guest.get(), 9), "220 hello");
  EXPECT_TRUE(Works(guest.get(), server.get()));
  SetTarget(Endpoint{*ParseAddress("127.0.0.2"), PortOf(server_.get())});
  Denial denial = ExpectAlert(Hello(Sni("api.example.test")));
  EXPECT_EQ(denial.rule, "subnets.deny 127.0.0.2/32");
  EXPECT_EQ(denial.hint, R"(take "127.0.0.2/32" out of subnets.deny)");
}

TEST_F(EgressCustomTest, ADeniedSubnetBeatsTheName) {
  Start(Custom({"api.example.test"}, {}, {"127.0.0.0/8"}));
  Denial denial = ExpectAlert(Hello(Sni("api.example.test")));
  EXPECT_TRUE(denial.reason.contains("subnets.deny")) << denial.reason;
  EXPECT_TRUE(denial.reason.contains("127.0.0.1")) << denial.reason;
}

TEST_F(EgressCustomTest, ReboundNamesLeadNowhere) {
  config_.allow_addresses = {};
  Start(Custom({"*"}));
  for (const char* address : {"127.0.0.1", "169.254.169.254", "10.1.2.3", "168.63.129.16", "100.100.100.200"}) {
    resolver_.Add("rebound.test", address);
    Denial denial = ExpectAlert(Hello(Sni("rebound.test")));
    EXPECT_EQ(denial.host, "rebound.test");
    EXPECT_EQ(denial.rule, "server");
    EXPECT_TRUE(denial.reason.contains("rebound.test resolves to "s + address)) << denial.reason;
    EXPECT_TRUE(denial.hint.contains("allow_addresses"));
  }
}

TEST_F(EgressCustomTest, ANameThatDoesNotExistIsAFailureNotADenial) {
  Start(Custom({"*"}));
  Fd guest = Connected(Hello(Sni("missing.test")));
  EXPECT_EQ(ReadToEnd(guest.get()).error, ECONNRESET);
  EXPECT_EQ(Counters().denied, 0u);
  EXPECT_TRUE(Attempts().at(0).reason.contains("no such name"));
}

TEST_F(EgressCustomTest, PlainHttpAndRuledDomainsGoToTheInterceptor) {
  interceptor_ = &fake_;
  Start(Ruled("api.example.test", "s3cret"));
  Fd http = Connected("GET / HTTP/1.1\r\n");
  EXPECT_EQ(ReadSome(http.get(), 9), "http  GET");
  Fd tls = Connected(Hello(Sni("api.example.test")));
  EXPECT_EQ(ReadSome(tls.get(), 21), "tls api.example.test ");
  Fd decoy = Connected(Hello(Sni("api.example.test") + Ech()));  // harmless where we end TLS
  EXPECT_EQ(ReadSome(decoy.get(), 21), "tls api.example.test ");
  EXPECT_FALSE(ServerWasReached());
}

TEST_F(EgressCustomTest, WithoutAnInterceptorRequestsAreRefused) {
  Start(Custom({"api.example.test"}));
  Fd http = Connected("GET / HTTP/1.1\r\nHost: api.example.test\r\n\r\n");
  ::shutdown(http.get(), SHUT_WR);
  std::string answer = ReadToEnd(http.get()).bytes;
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 403 ")) << answer;
  EXPECT_TRUE(answer.contains(R"({"error":{"code":"egress_denied","host":"api.example.test","rule":"server","hint":)"));
}

TEST_F(EgressCustomTest, Http2WithoutTlsIsRefused) {
  interceptor_ = &fake_;
  Start(Custom({"api.example.test"}));
  Fd guest = Connected("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
  ::shutdown(guest.get(), SHUT_WR);
  EXPECT_TRUE(ReadToEnd(guest.get()).bytes.contains("HTTP/2 without TLS"));
}

TEST_F(EgressCustomTest, PostgresIsDecidedByItsServerName) {
  Start(Custom({"api.example.test"}));
  Fd guest = Connected(std::string(kPostgresGssRequest));
  EXPECT_EQ(ReadSome(guest.get(), 1), "N");
  ASSERT_TRUE(SendAll(guest.get(), kPostgresSslRequest));
  EXPECT_EQ(ReadSome(guest.get(), 1), "S");
  std::string hello = Hello(Sni("api.example.test"));
  ASSERT_TRUE(SendAll(guest.get(), hello));
  Fd server = AcceptOne(server_.get());
  EXPECT_EQ(ReadSome(server.get(), 8), kPostgresSslRequest);
  ASSERT_TRUE(SendAll(server.get(), "S"));
  EXPECT_EQ(ReadSome(server.get(), hello.size()), hello);
  EXPECT_TRUE(Works(guest.get(), server.get()));

  Fd other = Connected(std::string(kPostgresSslRequest));
  EXPECT_EQ(ReadSome(other.get(), 1), "S");
  ASSERT_TRUE(SendAll(other.get(), Hello(Sni("other.example.test"))));
  EXPECT_EQ(ReadSome(other.get(), 7).size(), 7u);
  EXPECT_EQ(Denials().back().host, "other.example.test");
  EXPECT_FALSE(ServerWasReached());
}

TEST_F(EgressCustomTest, PostgresInTheClearOrWithBytesAheadIsReset) {
  Start(Custom({"api.example.test"}));
  Fd ahead = Connected(std::string(kPostgresSslRequest) + Hello(Sni("api.example.test")));
  EXPECT_EQ(ReadToEnd(ahead.get()).error, ECONNRESET);
  Fd plain = Connected(std::string(kPostgresGssRequest));
  EXPECT_EQ(ReadSome(plain.get(), 1), "N");
  ASSERT_TRUE(SendAll(plain.get(), "\x00\x00\x00\x10\x00\x03\x00\x00user\x00me\x00"s));
  EXPECT_EQ(ReadToEnd(plain.get()).error, ECONNRESET);
  EXPECT_FALSE(ServerWasReached());
}

TEST_F(EgressCustomTest, PostgresServerWithoutTlsIsAFailure) {
  Start(Custom({"api.example.test"}));
  Fd guest = Connected(std::string(kPostgresSslRequest));
  EXPECT_EQ(ReadSome(guest.get(), 1), "S");
  ASSERT_TRUE(SendAll(guest.get(), Hello(Sni("api.example.test"))));
  Fd server = AcceptOne(server_.get());
  EXPECT_EQ(ReadSome(server.get(), 8), kPostgresSslRequest);
  ASSERT_TRUE(SendAll(server.get(), "N"));
  EXPECT_EQ(ReadToEnd(guest.get()).error, ECONNRESET);
  EXPECT_EQ(ReadToEnd(server.get()).bytes, "");  // the hello stayed here
}

}  // namespace
}  // namespace sandbar::egress::testing
