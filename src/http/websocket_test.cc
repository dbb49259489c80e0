#include "http/websocket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/http/websocket_fixture.h"

namespace sandbar::http {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using Kind = WebSocketKind;

// Sends messages of all sizes and kinds, reads them back, and closes.
Task<> SayAndListen(WebSocket* ws) {
  for (size_t size : {0, 1, 125, 126, 65535, 65536, 1 << 20}) {
    const std::string sent(size, static_cast<char>('a' + size % 26));
    const Kind kind = size % 2 == 0 ? Kind::kText : Kind::kBinary;
    SB_CO_TRYV(co_await ws->Write(kind, sent));
    SB_CO_TRY(WebSocketMessage got, co_await ws->Read());
    EXPECT_EQ(got.kind, kind);
    EXPECT_EQ(got.data, sent);
  }
  SB_CO_TRYV(co_await ws->Write(Kind::kText, "caf\xc3\xa9"));
  SB_CO_TRY(WebSocketMessage text, co_await ws->Read());
  EXPECT_EQ(text.data, "caf\xc3\xa9");
  SB_CO_TRYV(co_await ws->Close(4001, "bye"));
  auto late = co_await ws->Write(Kind::kText, "late");
  EXPECT_EQ(late.error().code, Code::kClosed);
  SB_CO_TRY(WebSocketMessage close, co_await ws->Read());
  EXPECT_EQ(close.kind, Kind::kClose);
  EXPECT_EQ(close.code, 4001);
  co_return Result<>{};
}

Task<> BothRoles(WebSocketTest* t) {
  SB_CO_TRYV(co_await t->Talk("/echo", SayAndListen));
  SB_CO_TRYV(co_await t->WaitEnded());
  EXPECT_TRUE(t->ended_[0]);
  EXPECT_EQ(t->closed_by_peer_->code, 4001);
  EXPECT_EQ(t->closed_by_peer_->data, "bye");
  co_return Result<>{};
}

TEST_F(WebSocketTest, ClientAndServer) {
  Run(BothRoles);
}

TEST_F(WebSocketTest, ClientAndServerOverTls) {
  const TestCertificate certificate;
  client_options_.ca_file = certificate.cert();
  Run(BothRoles, HttpServerOptions{.tls_cert_file = certificate.cert(), .tls_key_file = certificate.key()});
}

Task<> Pour(WebSocket* ws) {
  for (int i = 0; i < 300; ++i) {
    std::string piece(64 << 10, static_cast<char>(i));
    SB_CO_TRYV(co_await ws->Write(Kind::kBinary, std::move(piece)));
  }
  co_return Result<>{};
}

Task<> Drink(WebSocket* ws) {
  for (int i = 0; i < 300; ++i) {
    SB_CO_TRY(WebSocketMessage got, co_await ws->Read());
    EXPECT_EQ(got.data, std::string(64 << 10, static_cast<char>(i)));
  }
  co_return Result<>{};
}

Task<> PourAndDrink(WebSocket* ws) {
  using namespace asio::experimental::awaitable_operators;
  auto [poured, drunk] = co_await (Pour(ws) && Drink(ws));
  SB_CO_TRYV(std::move(poured));
  co_return std::move(drunk);
}

// More than all buffers between the two hold.
TEST_F(WebSocketTest, MuchInBothDirectionsAtOnce) {
  Run([](WebSocketTest* t) -> Task<> {
    SB_CO_TRYV(co_await t->Talk("/echo", PourAndDrink));
    SB_CO_TRYV(co_await t->WaitEnded());
    EXPECT_EQ(t->closed_by_peer_->code, 1000);
    co_return Result<>{};
  });
}

TEST_F(WebSocketTest, OtherRequestsGetOrdinaryAnswers) {
  Run([](WebSocketTest* t) -> Task<> {
    RawClient c(t->io_.get_executor());
    SB_CO_TRYV(co_await c.Connect(t->server_->port()));
    SB_CO_TRYV(co_await c.Send("GET /echo HTTP/1.1\r\nHost: a\r\n\r\n"));
    SB_CO_TRY(auto plain, co_await c.ReadAnswer());
    EXPECT_EQ(plain.status, 426);
    EXPECT_EQ(plain.head.Get("upgrade"), "websocket");
    EXPECT_THAT(plain.body, HasSubstr("upgrade_required"));
    std::string old = RawPeer::Handshake("/echo");
    old.replace(old.find(": 13"), 4, ": 12");
    SB_CO_TRYV(co_await c.Send(old));
    SB_CO_TRY(auto version, co_await c.ReadAnswer());
    EXPECT_EQ(version.status, 426);
    EXPECT_EQ(version.head.Get("sec-websocket-version"), "13");
    std::string keyless = RawPeer::Handshake("/echo");
    keyless.replace(keyless.find("-Key"), 4, "-Qey");
    SB_CO_TRYV(co_await c.Send(keyless));
    SB_CO_TRY(auto key, co_await c.ReadAnswer());
    EXPECT_EQ(key.status, 400);
    SB_CO_TRYV(co_await c.Send(RawPeer::Handshake("/echo", "Content-Length: 1\r\n") + "x"));
    SB_CO_TRY(auto body, co_await c.ReadAnswer());
    EXPECT_EQ(body.status, 400);
    co_return Result<>{};
  });
}

TEST_F(WebSocketTest, OffersAreDeclinedAndEarlyBytesAreRead) {
  Run([](WebSocketTest* t) -> Task<> {
    RawPeer* peer = &t->peers_.emplace_back(t->io_.get_executor());
    const std::string early = RawPeer::Frame(Kind::kText, "early");
    const std::string offers = "Sec-WebSocket-Extensions: permessage-deflate\r\nSec-WebSocket-Protocol: chat\r\n";
    SB_CO_TRY(std::string head, co_await peer->Open(t->server_->port(), "/echo", early, offers));
    EXPECT_THAT(head, AllOf(StartsWith("HTTP/1.1 101 "), HasSubstr("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="),
                            Not(HasSubstr("extensions")), Not(HasSubstr("protocol:"))));
    SB_CO_TRY(WebSocketMessage got, co_await peer->Read());
    EXPECT_EQ(got.data, "early");
    co_return Result<>{};
  });
}

TEST_F(WebSocketTest, PingsAreAnsweredBetweenFragmentsAndByteByByte) {
  Run([](WebSocketTest* t) -> Task<> {
    SB_CO_TRY(RawPeer * peer, co_await t->Open("/echo"));
    std::string first = RawPeer::Frame(Kind::kText, "he");
    std::string last = RawPeer::Frame(Kind::kText, "llo");
    first[0] = 0x01;
    last[0] = static_cast<char>(0x80);
    const std::string bytes = first + RawPeer::Frame(Kind::kPing, "there?") + last;
    for (char byte : bytes) SB_CO_TRYV(co_await peer->Send(std::string(1, byte)));
    SB_CO_TRY(WebSocketMessage pong, co_await peer->Read());
    EXPECT_EQ(pong.kind, Kind::kPong);
    EXPECT_EQ(pong.data, "there?");
    SB_CO_TRY(WebSocketMessage echo, co_await peer->Read());
    EXPECT_EQ(echo.data, "hello");
    co_return Result<>{};
  });
}

struct Offence {
  std::string bytes;
  uint16_t closes_with;
  Code code;
};

Task<> Commit(WebSocketTest* t, Offence offence) {
  SB_CO_TRY(RawPeer * peer, co_await t->Open("/echo"));
  // What is under way behind the offence must not turn the close into a reset.
  SB_CO_TRYV(co_await peer->Send(offence.bytes + std::string(200'000, 'x')));
  SB_CO_TRY(WebSocketMessage close, co_await peer->Read());
  EXPECT_EQ(close.kind, Kind::kClose);
  EXPECT_EQ(close.code, offence.closes_with);
  EXPECT_NE(close.data, "");
  auto end = co_await peer->Read();
  EXPECT_EQ(end.error().code, Code::kClosed);
  EXPECT_EQ(t->ended_.back().error().code, offence.code);
  peer->Disconnect();
  co_return Result<>{};
}

TEST_F(WebSocketTest, BrokenRulesAreClosedWithTheirCode) {
  Run([](WebSocketTest* t) -> Task<> {
    std::string reserved = RawPeer::Frame(Kind::kText, "deflated");
    reserved[0] = static_cast<char>(0xc1);
    const std::string large = RawPeer::Frame(Kind::kBinary, std::string((1 << 20) + 1, 'x'));
    std::vector<Offence> offences = {{std::string("\x81\x01x", 3), 1002, Code::kProtocol},
                                     {reserved, 1002, Code::kProtocol},
                                     {RawPeer::Frame(Kind::kText, "\xff"), 1007, Code::kProtocol},
                                     {large.substr(0, 100), 1009, Code::kTooLarge}};
    for (const Offence& offence : offences) SB_CO_TRYV(co_await Commit(t, offence));
    co_return Result<>{};
  });
}

TEST_F(WebSocketTest, AFloodOfPingsIsRefused) {
  options_.ping_every = 1h;
  Run([](WebSocketTest* t) -> Task<> {
    SB_CO_TRY(RawPeer * peer, co_await t->Open("/echo"));
    std::string flood;
    for (int i = 0; i < 5000; ++i) flood += RawPeer::Frame(Kind::kPing, std::to_string(i));
    SB_CO_TRYV(co_await peer->Send(std::move(flood)));
    size_t pongs = 0;
    while (true) {
      SB_CO_TRY(WebSocketMessage got, co_await peer->Read());
      if (got.kind == Kind::kClose) {
        EXPECT_EQ(got.code, 1008);
        break;
      }
      EXPECT_EQ(got.kind, Kind::kPong);
      ++pongs;
    }
    EXPECT_LE(pongs, 1000U);
    SB_CO_TRYV(co_await t->WaitEnded());
    EXPECT_EQ(t->ended_[0].error().code, Code::kTooMany);
    co_return Result<>{};
  });
}

TEST_F(WebSocketTest, AFloodOfEmptyFragmentsIsRefused) {
  options_.ping_every = 1h;
  Run([](WebSocketTest* t) -> Task<> {
    SB_CO_TRY(RawPeer * peer, co_await t->Open("/echo"));
    std::string start = RawPeer::Frame(Kind::kBinary, "x");
    start[0] = 0x02;
    std::string empty = RawPeer::Frame(Kind::kBinary, "");
    empty[0] = 0x00;
    std::string flood = start;
    for (int i = 0; i < 5000; ++i) flood += empty;
    SB_CO_TRYV(co_await peer->Send(std::move(flood)));
    SB_CO_TRY(WebSocketMessage close, co_await peer->Read());
    EXPECT_EQ(close.code, 1008);
    co_return Result<>{};
  });
}

// Waits until the server's writer has not moved for a while. One that never stops fails the test that asks.
Task<> WaitStalled(WebSocketTest* t) {
  uint64_t before = UINT64_MAX;
  while (before != t->written_) {
    before = t->written_;
    SB_CO_TRYV(co_await Sleep(300ms));
  }
  co_return Result<>{};
}

TEST_F(WebSocketTest, ASlowPeerSuspendsTheWriter) {
  Run([](WebSocketTest* t) -> Task<> {
    SB_CO_TRY(RawPeer * peer, co_await t->Open("/flood"));
    SB_CO_TRYV(co_await WaitStalled(t));
    EXPECT_LT(t->written_, 40U << 20);
    for (int i = 0; i < 1024; ++i) {
      SB_CO_TRY(WebSocketMessage got, co_await peer->ReadData());
      EXPECT_EQ(got.data, std::string(64 << 10, static_cast<char>('a' + i % 26)));
    }
    co_return Result<>{};
  });
}

TEST_F(WebSocketTest, ASlowPeerIsNotGone) {
  options_.ping_every = 5ms;
  options_.dead_after = 200ms;
  Run([](WebSocketTest* t) -> Task<> {
    SB_CO_TRYV(co_await t->Open("/both"));
    SB_CO_TRYV(co_await WaitStalled(t));
    EXPECT_TRUE(t->ended_.empty());
    co_return Result<>{};
  });
}

TEST_F(WebSocketTest, ACancelledWriteLeavesTheStreamWhole) {
  Run([](WebSocketTest* t) -> Task<> {
    SB_CO_TRY(RawPeer * peer, co_await t->Open("/impatient"));
    while (!t->gave_up_) SB_CO_TRYV(co_await t->changed_.Wait());
    WebSocketMessage got;
    while (got.kind != Kind::kText) {
      SB_CO_TRY(got, co_await peer->Read());
      if (got.kind == Kind::kBinary) {
        EXPECT_EQ(got.data, std::string(64 << 10, 'x'));
      }
    }
    EXPECT_EQ(got.data, "the last");
    co_return Result<>{};
  });
}

TEST_F(WebSocketTest, ACancelledReadMayBeRepeated) {
  Run([](WebSocketTest* t) -> Task<> {
    SB_CO_TRY(RawPeer * peer, co_await t->Open("/retry"));
    const std::string frame = RawPeer::Frame(Kind::kText, "in two parts");
    SB_CO_TRYV(co_await peer->Send(frame.substr(0, 9)));
    SB_CO_TRY(WebSocketMessage now, co_await peer->Read());
    EXPECT_EQ(now.data, "now");
    SB_CO_TRYV(co_await peer->Send(frame.substr(9)));
    SB_CO_TRY(WebSocketMessage echo, co_await peer->Read());
    EXPECT_EQ(echo.data, "in two parts");
    co_return Result<>{};
  });
}

TEST_F(WebSocketTest, PingsKeepTheConnectionOpen) {
  options_.ping_every = 5ms;
  Run([](WebSocketTest* t) -> Task<> {
    SB_CO_TRY(RawPeer * peer, co_await t->Open("/echo"));
    for (int i = 0; i < 3; ++i) {
      SB_CO_TRY(WebSocketMessage ping, co_await peer->Read());
      EXPECT_EQ(ping.kind, Kind::kPing);
      SB_CO_TRYV(co_await peer->Send(Kind::kPong, ping.data));
    }
    SB_CO_TRYV(co_await peer->Send(Kind::kText, "still here"));
    SB_CO_TRY(WebSocketMessage echo, co_await peer->ReadData());
    EXPECT_EQ(echo.data, "still here");
    co_return Result<>{};
  });
}

TEST_F(WebSocketTest, APeerThatDoesNotAnswerIsGone) {
  options_.ping_every = 5ms;
  options_.dead_after = 20ms;
  Run([](WebSocketTest* t) -> Task<> {
    SB_CO_TRY(RawPeer * peer, co_await t->Open("/echo"));
    SB_CO_TRYV(co_await t->WaitEnded());
    EXPECT_EQ(t->ended_[0].error().code, Code::kTimeout);
    auto end = co_await peer->ReadData();
    EXPECT_EQ(end.error().code, Code::kClosed);
    co_return Result<>{};
  });
}

Task<> ExpectClose(WebSocketTest* t, std::string path, uint16_t code, std::string reason) {
  SB_CO_TRY(RawPeer * peer, co_await t->Open(std::move(path)));
  SB_CO_TRY(WebSocketMessage close, co_await peer->Read());
  EXPECT_EQ(close.kind, Kind::kClose);
  EXPECT_EQ(close.code, code);
  EXPECT_EQ(close.data, reason);
  SB_CO_TRYV(co_await peer->Send(Kind::kText, "crossed the close"));
  SB_CO_TRYV(co_await peer->Send(Kind::kClose, wire::ClosePayload(code, "")));
  auto end = co_await peer->Read();
  EXPECT_EQ(end.error().code, Code::kClosed);
  co_return Result<>{};
}

TEST_F(WebSocketTest, EachEndOfASessionClosesInOrder) {
  options_.close_timeout = 1h;
  Run([](WebSocketTest* t) -> Task<> {
    SB_CO_TRYV(co_await ExpectClose(t, "/close", 4000, "that is all"));
    SB_CO_TRYV(co_await ExpectClose(t, "/return", 1000, ""));
    SB_CO_TRYV(co_await ExpectClose(t, "/fail", 1011, ""));
    SB_CO_TRYV(co_await ExpectClose(t, "/expire", 1001, ""));
    EXPECT_TRUE(t->ended_.at(0));
    EXPECT_TRUE(t->ended_.at(1));
    EXPECT_EQ(t->ended_.at(2).error().code, Code::kIo);
    EXPECT_EQ(t->ended_.at(3).error().code, Code::kTimeout);
    co_return Result<>{};
  });
}

TEST_F(WebSocketTest, ThePeersCloseIsEchoed) {
  Run([](WebSocketTest* t) -> Task<> {
    SB_CO_TRY(RawPeer * peer, co_await t->Open("/echo"));
    SB_CO_TRYV(co_await peer->Send(Kind::kClose, wire::ClosePayload(4002, "had enough")));
    SB_CO_TRY(WebSocketMessage close, co_await peer->Read());
    EXPECT_EQ(close.code, 4002);
    EXPECT_EQ(t->closed_by_peer_->data, "had enough");
    SB_CO_TRY(RawPeer * bare, co_await t->Open("/echo"));
    SB_CO_TRYV(co_await bare->Send(Kind::kClose, ""));
    SB_CO_TRY(WebSocketMessage empty, co_await bare->Read());
    EXPECT_EQ(empty.code, wire::kCloseNoCode);
    EXPECT_EQ(t->closed_by_peer_->code, wire::kCloseNoCode);
    co_return Result<>{};
  });
}

TEST_F(WebSocketTest, APeerThatDoesNotCloseIsCutOff) {
  options_.close_timeout = 50ms;
  Run([](WebSocketTest* t) -> Task<> {
    SB_CO_TRY(RawPeer * peer, co_await t->Open("/close"));
    SB_CO_TRY(WebSocketMessage close, co_await peer->Read());
    EXPECT_EQ(close.code, 4000);
    auto end = co_await peer->Read();
    EXPECT_EQ(end.error().code, Code::kClosed);
    SB_CO_TRYV(co_await t->WaitEnded());
    EXPECT_EQ(t->ended_[0].error().code, Code::kTimeout);
    co_return Result<>{};
  });
}

TEST_F(WebSocketTest, APeerThatDisconnectsHasClosedNothing) {
  Run([](WebSocketTest* t) -> Task<> {
    SB_CO_TRY(RawPeer * peer, co_await t->Open("/echo"));
    peer->Disconnect();
    SB_CO_TRYV(co_await t->WaitEnded());
    EXPECT_EQ(t->ended_[0].error().code, Code::kClosed);
    // A writer is told as well.
    SB_CO_TRY(RawPeer * reader, co_await t->Open("/flood"));
    SB_CO_TRYV(co_await reader->Read());
    reader->Disconnect();
    SB_CO_TRYV(co_await t->WaitEnded(2));
    EXPECT_EQ(t->ended_[1].error().code, Code::kClosed);
    co_return Result<>{};
  });
}

TEST_F(WebSocketTest, TheServersEndEndsSessions) {
  options_.close_timeout = 1h;
  Run([](WebSocketTest* t) -> Task<> {
    SB_CO_TRYV(co_await t->Open("/echo"));
    SB_CO_TRYV(co_await t->Open("/both"));
    co_return Result<>{};
  });
  ASSERT_EQ(ended_.size(), 2U);
  for (const Result<>& ended : ended_) EXPECT_FALSE(ended);
}

TEST_F(WebSocketTest, AClientIsToldOfARefusal) {
  Run([](WebSocketTest* t) -> Task<> {
    ClientRequest request{.url = t->url_ + "/refuse"};
    SB_CO_TRY(UpgradeAnswer answer, co_await DialWebSocket(std::move(request)));
    EXPECT_EQ(answer.stream, nullptr);
    EXPECT_EQ(answer.status, 401);
    EXPECT_EQ(answer.body, "who are you");
    co_return Result<>{};
  });
}

TEST_F(WebSocketTest, AClientRefusesTheAnswerToAnotherKey) {
  Run([](WebSocketTest* t) -> Task<> {
    ClientRequest request{.url = t->url_ + "/other-key"};
    auto answer = co_await DialWebSocket(std::move(request));
    EXPECT_EQ(answer.error().code, Code::kProtocol);
    co_return Result<>{};
  });
}

}  // namespace
}  // namespace sandbar::http
