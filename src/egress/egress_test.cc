#include "egress/egress.h"

#include <poll.h>

#include <algorithm>

#include "egress/connection.h"
#include "support/egress/egress_fixture.h"

namespace sandbar::egress::testing {
namespace {

constexpr std::string_view kClientHello("\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00", 10);

TEST(Classify, ByFirstBytes) {
  EXPECT_EQ(Classify(""), AppProtocol::kUnknownYet);
  EXPECT_EQ(Classify("\x16"), AppProtocol::kUnknownYet);
  EXPECT_EQ(Classify(kClientHello), AppProtocol::kTls);
  EXPECT_EQ(Classify("\x16\x07\x01"), AppProtocol::kOther);
  EXPECT_EQ(Classify("G"), AppProtocol::kUnknownYet);
  EXPECT_EQ(Classify("GET / HTTP/1.1\r\n"), AppProtocol::kHttp);
  EXPECT_EQ(Classify("P"), AppProtocol::kUnknownYet);
  EXPECT_EQ(Classify("PATCH /"), AppProtocol::kHttp);
  EXPECT_EQ(Classify("GETX"), AppProtocol::kOther);
  EXPECT_EQ(Classify("SSH-2.0"), AppProtocol::kOther);
}

TEST_F(EgressTest, DenyAllAnswersTlsWithAnAlert) {
  Start(EgressMode::kDenyAll);
  SetTarget(Endpoint{*ParseAddress("93.184.216.34"), 443});
  Fd guest = Dial(tcp_port_);
  ASSERT_TRUE(SendAll(guest.get(), kClientHello));
  Received got;
  got.bytes = ReadSome(guest.get(), 7);
  EXPECT_EQ(got.bytes, std::string("\x15\x03\x03\x00\x02\x02\x31", 7));
  EXPECT_EQ(ReadToEnd(guest.get()).error, 0);
  auto denials = Denials();
  ASSERT_EQ(denials.size(), 1u);
  EXPECT_EQ(denials[0].kind, "tls");
  EXPECT_EQ(denials[0].target, "93.184.216.34:443");
  EXPECT_NE(denials[0].reason.find("deny-all"), std::string::npos);
  EXPECT_NE(denials[0].hint.find("allow-all"), std::string::npos);
  EXPECT_EQ(Counters().denied, 1u);
}

TEST_F(EgressTest, DenyAllAnswersHttpWith403) {
  Start(EgressMode::kDenyAll);
  SetTarget(Endpoint{*ParseAddress("93.184.216.34"), 80});
  Fd guest = Dial(tcp_port_);
  ASSERT_TRUE(SendAll(guest.get(), "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n"));
  ASSERT_TRUE(SendAll(guest.get(), "\r\n" + std::string(100000, 'x')));
  ::shutdown(guest.get(), SHUT_WR);
  Received got = ReadToEnd(guest.get());
  EXPECT_EQ(got.error, 0);
  EXPECT_TRUE(got.bytes.starts_with("HTTP/1.1 403 Forbidden\r\n")) << got.bytes;
  EXPECT_NE(got.bytes.find(R"("code":"egress_denied")"), std::string::npos);
  EXPECT_NE(got.bytes.find(R"("rule":"deny-all","hint":"set the sandbox's networkPolicy to )"), std::string::npos);
}

TEST_F(EgressTest, DenyAllResetsWhatItCannotTalkTo) {
  Start(EgressMode::kDenyAll);
  SetTarget(Endpoint{*ParseAddress("93.184.216.34"), 22});
  Fd guest = Dial(tcp_port_);
  ASSERT_TRUE(SendAll(guest.get(), "SSH-2.0-test\r\n"));
  EXPECT_EQ(ReadToEnd(guest.get()).error, ECONNRESET);
  Fd silent = Dial(tcp_port_);  // waits for the server to speak first
  EXPECT_EQ(ReadToEnd(silent.get()).error, ECONNRESET);
}

TEST_F(EgressTest, NotRedirectedIsReset) {
  Start(EgressMode::kAllowAll);
  SetTarget(std::nullopt);
  Fd guest = Dial(tcp_port_);
  EXPECT_EQ(ReadToEnd(guest.get()).error, ECONNRESET);
}

TEST_F(EgressTest, AllowAllStillRefusesTheHost) {
  Fd secret = BoundSocket(SOCK_STREAM);
  Start(EgressMode::kAllowAll);
  SetTarget(Local(PortOf(secret.get())));
  Fd guest = Dial(tcp_port_);
  ASSERT_TRUE(SendAll(guest.get(), "GET / HTTP/1.1\r\n\r\n"));
  Received got = ReadToEnd(guest.get());
  EXPECT_NE(got.bytes.find("address not allowed: loopback"), std::string::npos) << got.bytes;
  pollfd p{secret.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&p, 1, 0), 0);  // not even a connection arrived
  EXPECT_NE(Denials().at(0).hint.find("127.0.0.1"), std::string::npos);
}

TEST_F(EgressTest, ListenerPortIsNeverATarget) {
  config_.allow_addresses = {"127.0.0.0/8"};
  Start(EgressMode::kAllowAll);
  SetTarget(Local(1));
  Fd guest = Dial(tcp_port_);
  ASSERT_TRUE(SendAll(guest.get(), "GET / HTTP/1.1\r\n\r\n"));
  EXPECT_NE(ReadToEnd(guest.get()).bytes.find("port not allowed"), std::string::npos);
}

TEST_F(EgressTest, CarriesBothWaysAndCounts) {
  config_.allow_addresses = {"127.0.0.1"};
  Fd listener = BoundSocket(SOCK_STREAM);
  Start(EgressMode::kAllowAll);
  SetTarget(Local(PortOf(listener.get())));
  Fd guest = Dial(tcp_port_);
  Fd server = AcceptOne(listener.get());
  std::string up(5 << 20, '\0'), down(9 << 20, '\0');
  for (size_t i = 0; i < up.size(); ++i) up[i] = static_cast<char>(i * 7 + i / 251);
  for (size_t i = 0; i < down.size(); ++i) down[i] = static_cast<char>(i * 13 + i / 241);
  std::thread guest_writer([&] {
    EXPECT_TRUE(SendAll(guest.get(), up));
    ::shutdown(guest.get(), SHUT_WR);
  });
  std::thread server_writer([&] {
    EXPECT_TRUE(SendAll(server.get(), down));
    ::shutdown(server.get(), SHUT_WR);
  });
  std::string at_server;
  std::thread server_reader([&] { at_server = ReadToEnd(server.get()).bytes; });
  Received at_guest = ReadToEnd(guest.get());
  guest_writer.join();
  server_writer.join();
  server_reader.join();
  EXPECT_TRUE(at_guest.bytes == down);
  EXPECT_TRUE(at_server == up);
  EXPECT_EQ(at_guest.error, 0);
  EgressCounters c = Counters();
  EXPECT_EQ(c.egress_bytes, up.size());
  EXPECT_EQ(c.ingress_bytes, down.size());
  EXPECT_EQ(c.connections, 1u);
  EXPECT_EQ(c.denied, 0u);
}

TEST_F(EgressTest, HalfCloseKeepsTheOtherDirection) {
  config_.allow_addresses = {"127.0.0.1"};
  Fd listener = BoundSocket(SOCK_STREAM);
  Start(EgressMode::kAllowAll);
  SetTarget(Local(PortOf(listener.get())));
  Fd guest = Dial(tcp_port_);
  Fd server = AcceptOne(listener.get());
  ASSERT_TRUE(SendAll(guest.get(), "question"));
  ::shutdown(guest.get(), SHUT_WR);
  EXPECT_EQ(ReadToEnd(server.get()).bytes, "question");
  ASSERT_TRUE(SendAll(server.get(), "answer after the guest's end"));
  server.Reset();
  Received got = ReadToEnd(guest.get());
  EXPECT_EQ(got.bytes, "answer after the guest's end");
  EXPECT_EQ(got.error, 0);
}

TEST_F(EgressTest, ResetTravelsToTheOtherSide) {
  config_.allow_addresses = {"127.0.0.1"};
  Fd listener = BoundSocket(SOCK_STREAM);
  Start(EgressMode::kAllowAll);
  SetTarget(Local(PortOf(listener.get())));
  Fd guest = Dial(tcp_port_);
  Fd server = AcceptOne(listener.get());
  linger now{.l_onoff = 1, .l_linger = 0};
  ::setsockopt(server.get(), SOL_SOCKET, SO_LINGER, &now, sizeof(now));
  server.Reset();
  EXPECT_EQ(ReadToEnd(guest.get()).error, ECONNRESET);
}

TEST_F(EgressTest, RefusedUpstreamIsAReset) {
  config_.allow_addresses = {"127.0.0.1"};
  Fd unused = BoundSocket(SOCK_STREAM);
  uint16_t port = PortOf(unused.get());
  unused.Reset();
  Start(EgressMode::kAllowAll);
  SetTarget(Local(port));
  Fd guest = Dial(tcp_port_);
  EXPECT_EQ(ReadToEnd(guest.get()).error, ECONNRESET);
  EXPECT_EQ(Counters().denied, 0u);
}

TEST_F(EgressTest, AReaderThatDoesNotReadStopsTheSender) {
  config_.allow_addresses = {"127.0.0.1"};
  Fd listener = BoundSocket(SOCK_STREAM);
  Start(EgressMode::kAllowAll);
  SetTarget(Local(PortOf(listener.get())));
  Fd guest = Dial(tcp_port_);
  Fd server = AcceptOne(listener.get());
  timeval tv{.tv_sec = 1, .tv_usec = 0};
  ::setsockopt(server.get(), SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv));
  std::string piece(1 << 20, 'x');
  size_t sent = 0;
  constexpr size_t kFarTooMuch = size_t{512} << 20;
  while (sent < kFarTooMuch) {
    ssize_t n = ::send(server.get(), piece.data(), piece.size(), MSG_NOSIGNAL);
    if (n < 0) break;
    sent += static_cast<size_t>(n);
  }
  EXPECT_LT(sent, kFarTooMuch);  // the kernel's buffers are full and nothing else took bytes
  std::string got;
  std::thread reader([&] { got = ReadToEnd(guest.get()).bytes; });
  server.Reset();
  reader.join();
  EXPECT_EQ(got.size(), sent);
}

TEST_F(EgressTest, SwitchToDenyAllCutsOpenConnectionsAndRefusesNewOnes) {
  config_.allow_addresses = {"127.0.0.1"};
  Fd listener = BoundSocket(SOCK_STREAM);
  Start(EgressMode::kAllowAll);
  SetTarget(Local(PortOf(listener.get())));
  Fd guest = Dial(tcp_port_);
  Fd server = AcceptOne(listener.get());
  ASSERT_TRUE(SendAll(guest.get(), "hello"));
  EXPECT_EQ(ReadSome(server.get(), 5), "hello");
  SetMode(EgressMode::kDenyAll);
  EXPECT_EQ(ReadToEnd(guest.get()).error, ECONNRESET);
  EXPECT_EQ(ReadToEnd(server.get()).error, ECONNRESET);
  Fd again = Dial(tcp_port_);
  ASSERT_TRUE(SendAll(again.get(), "GET / HTTP/1.1\r\n\r\n"));
  EXPECT_TRUE(ReadToEnd(again.get()).bytes.starts_with("HTTP/1.1 403"));
  SetMode(EgressMode::kAllowAll);
  Fd third = Dial(tcp_port_);
  Fd third_server = AcceptOne(listener.get());
  ASSERT_TRUE(SendAll(third_server.get(), "back"));
  EXPECT_EQ(ReadSome(third.get(), 4), "back");
}

TEST_F(EgressTest, ConnectionsAreBudgeted) {
  config_.allow_addresses = {"127.0.0.1"};
  config_.max_connections = 3;
  Fd listener = BoundSocket(SOCK_STREAM);
  Start(EgressMode::kAllowAll);
  SetTarget(Local(PortOf(listener.get())));
  std::vector<Fd> guests, servers;
  for (int i = 0; i < 3; ++i) {
    guests.push_back(Dial(tcp_port_));
    servers.push_back(AcceptOne(listener.get()));
  }
  Fd fourth = Dial(tcp_port_);
  EXPECT_EQ(ReadToEnd(fourth.get()).error, ECONNRESET);
  EXPECT_EQ(Denials().at(0).reason, "too many connections at once");
  guests.pop_back();
  EXPECT_EQ(ReadToEnd(servers.back().get()).error, 0);
  servers.pop_back();
  // The place is free once both ends are gone; a connect that came too early is reset, so ask until one is served.
  for (;;) {
    Fd retry = Dial(tcp_port_);
    SendAll(retry.get(), "x");
    pollfd p[2] = {{listener.get(), POLLIN, 0}, {retry.get(), POLLIN, 0}};
    ASSERT_GT(::poll(p, 2, 20000), 0);
    if ((p[0].revents & POLLIN) != 0) break;
  }
}

TEST_F(EgressTest, HalfOpenIsBudgetedOnItsOwn) {
  config_.max_half_open = 2;
  config_.protocol_timeout = std::chrono::seconds(30);
  Start(EgressMode::kDenyAll);
  SetTarget(Endpoint{*ParseAddress("93.184.216.34"), 443});
  Fd a = Dial(tcp_port_), b = Dial(tcp_port_), c = Dial(tcp_port_);
  EXPECT_EQ(ReadToEnd(c.get()).error, ECONNRESET);
  ASSERT_TRUE(SendAll(a.get(), kClientHello));
  EXPECT_EQ(ReadSome(a.get(), 7).size(), 7u);
}

TEST_F(EgressTest, IdleConnectionsEnd) {
  config_.allow_addresses = {"127.0.0.1"};
  config_.idle_timeout = std::chrono::milliseconds(200);
  Fd listener = BoundSocket(SOCK_STREAM);
  Start(EgressMode::kAllowAll);
  SetTarget(Local(PortOf(listener.get())));
  Fd guest = Dial(tcp_port_);
  Fd server = AcceptOne(listener.get());
  EXPECT_EQ(ReadToEnd(guest.get()).error, ECONNRESET);
  EXPECT_EQ(ReadToEnd(server.get()).error, ECONNRESET);
}

TEST_F(EgressTest, CloseEndsEverything) {
  config_.allow_addresses = {"127.0.0.1"};
  config_.protocol_timeout = std::chrono::seconds(30);
  Fd listener = BoundSocket(SOCK_STREAM);
  Start(EgressMode::kAllowAll);
  SetTarget(Local(PortOf(listener.get())));
  std::vector<Fd> guests, servers;
  for (int i = 0; i < 20; ++i) {
    guests.push_back(Dial(tcp_port_));
    servers.push_back(AcceptOne(listener.get()));
  }
  std::atomic<bool> stop = false;
  std::thread busy([&] {  // bytes in flight while it closes
    std::string piece(1 << 16, 'x');
    while (!stop && ::send(guests[0].get(), piece.data(), piece.size(), MSG_NOSIGNAL) > 0) {
    }
  });
  std::thread sink([&] { ReadToEnd(servers[0].get()); });
  Close();
  stop = true;
  busy.join();
  sink.join();
  for (size_t i = 1; i < guests.size(); ++i) EXPECT_EQ(ReadToEnd(guests[i].get()).error, ECONNRESET);
}

TEST_F(EgressTest, DenialsAreBoundedAndRepetitionsCoalesce) {
  config_.protocol_timeout = std::chrono::milliseconds(1);
  Start(EgressMode::kDenyAll);
  for (int i = 0; i < 5; ++i) {
    SetTarget(Endpoint{*ParseAddress("93.184.216.34"), 443});
    Fd guest = Dial(tcp_port_);
    ReadToEnd(guest.get());
  }
  EXPECT_EQ(Denials().size(), 1u);
  EXPECT_EQ(Counters().denied, 5u);
  for (uint16_t i = 0; i < 300; ++i) {
    SetTarget(Endpoint{*ParseAddress("93.184.216.34"), static_cast<uint16_t>(1000 + i)});
    Fd guest = Dial(tcp_port_);
    ReadToEnd(guest.get());
  }
  auto denials = Denials();
  EXPECT_EQ(denials.size(), 256u);
  EXPECT_EQ(denials.back().target, "93.184.216.34:1299");
}

}  // namespace
}  // namespace sandbar::egress::testing
