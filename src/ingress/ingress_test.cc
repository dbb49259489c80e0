#include "ingress/ingress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <deque>

#include "http/byte_stream.h"
#include "support/http/raw_client.h"

namespace sandbar::ingress {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

// A server whose every request is proxied to a guest that the test plays, byte by byte.
class IngressTest : public testing::Test {
 public:
  using Body = Task<> (*)(IngressTest*);

  void Run(Body body) {
    auto listening = http::ListenHttp(
        io_.get_executor(), "127.0.0.1", 0, {}, [this](http::HttpExchange* x) { return Handle(x); },
        [](const Error& e) {
          return http::HttpResponse{
              .status = e.code == Code::kTimeout ? 504 : 502, .content_type = "", .body = e.message};
        });
    ASSERT_TRUE(listening) << listening.error().message;
    server_ = std::move(*listening);
    asio::co_spawn(io_, Supervise(body), http::Rethrow);
    io_.run();
    EXPECT_TRUE(outcome_) << outcome_.error().message;
  }

  // A client that has sent `bytes`.
  Task<http::RawClient*> Ask(std::string bytes) {
    http::RawClient* client = &sockets_.emplace_back(io_.get_executor());
    SB_CO_TRYV(co_await client->Connect(server_->port()));
    SB_CO_TRYV(co_await client->Send(std::move(bytes)));
    co_return client;
  }
  // The guest's end of the next connection to it, after it read the request's head into head_.
  Task<http::RawClient*> Guest() {
    while (dialled_.empty()) SB_CO_TRYV(co_await arrived_.Wait());
    http::RawClient* guest = &sockets_.emplace_back(io_.get_executor());
    boost::system::error_code ec;
    guest->socket().assign(asio::ip::tcp::v4(), dialled_.front().Release(), ec);
    dialled_.pop_front();
    head_.clear();
    while (!head_.contains("\r\n\r\n")) {
      SB_CO_TRY(std::string piece, co_await guest->ReadSome());
      if (piece.empty()) break;
      head_ += piece;
    }
    co_return guest;
  }
  // What a client gets for a plain GET when the guest sends `answer` and, if told so, closes.
  Task<http::RawClient::Answer> AnswerTo(std::string answer, bool close) {
    SB_CO_TRY(http::RawClient * client, co_await Ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
    SB_CO_TRY(http::RawClient * guest, co_await Guest());
    SB_CO_TRYV(co_await guest->Send(std::move(answer)));
    if (close) guest->Close();
    co_return co_await client->ReadAnswer();
  }

  std::string head_;
  IngressLimits limits_;

 private:
  Task<> Handle(http::HttpExchange* x) {
    int pair[2];
    SB_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0);
    dialled_.emplace_back(pair[1]);
    arrived_.Notify();
    IngressRequest request;
    request.target = x->request().target;
    request.host = "sb-x.localhost";
    request.headers = x->request().headers;
    request.client = "192.0.2.7";
    request.scheme = "http";
    request.public_host = "sb-x.preview.test";
    Fd ours(pair[0]);
    co_return co_await ProxyToGuest(x, std::move(ours), std::move(request), limits_);
  }

  asio::awaitable<void> Supervise(Body body) {
    outcome_ = co_await body(this);
    co_await server_->Close();
    for (auto& s : sockets_) s.Close();
    server_.reset();
  }

  asio::io_context io_{1};
  std::unique_ptr<http::HttpServer> server_;
  std::deque<http::RawClient> sockets_;
  std::deque<Fd> dialled_;
  Event arrived_{io_.get_executor()};
  Result<> outcome_ = Fail(Code::kInternal, "did not finish");
};

TEST(Ingress, CookiesBelongToTheirHost) {
  EXPECT_EQ(HostOnlyCookie("a=1; Domain=x.test; Path=/"), "a=1; Path=/");
  EXPECT_EQ(HostOnlyCookie("a=1;dOmAiN =x.test"), "a=1");
  EXPECT_EQ(HostOnlyCookie("a=1; domain; Secure;Domain=y"), "a=1; Secure");
  EXPECT_EQ(HostOnlyCookie("domain=1; Path=/"), "domain=1; Path=/");
  EXPECT_EQ(HostOnlyCookie("a=\"x; Domain=y\""), "a=\"x");
  EXPECT_EQ(HostOnlyCookie(""), "");
}

TEST_F(IngressTest, TheRequestIsWrittenAnew) {
  Run([](IngressTest* t) -> Task<> {
    SB_CO_TRY(
        http::RawClient * client,
        co_await t->Ask(
            "GET /p?q HTTP/1.1\r\nHost: sb-x.preview.test\r\nAccept: a\r\nAccept: b\r\n"
            "X-Forwarded-For: 1.2.3.4\r\nX_Real_IP: 1.2.3.4\r\nX-Forwarded-Prefix: /x\r\nforwarded: x\r\nConnection: "
            "keep-alive, X-Drop\r\nX-Drop: 1\r\n"
            "TE: trailers\r\nUpgrade: h2c\r\nProxy-Authorization: x\r\n\r\n"));
    SB_CO_TRY(http::RawClient * guest, co_await t->Guest());
    EXPECT_EQ(t->head_,
              "GET /p?q HTTP/1.1\r\nhost: sb-x.localhost\r\nAccept: a\r\nAccept: b\r\nx-forwarded-for: 192.0.2.7\r\n"
              "x-forwarded-proto: http\r\nx-forwarded-host: sb-x.preview.test\r\nconnection: close\r\n\r\n");
    SB_CO_TRYV(
        co_await guest->Send("HTTP/1.1 201 Fine\r\nX-A: 1\r\nX-A: 2\r\nConnection: X-Gone\r\nX-Gone: 1\r\n"
                             "Content-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n\r\n"));
    SB_CO_TRY(auto answer, co_await client->ReadAnswer());
    EXPECT_EQ(answer.status, 201);
    EXPECT_EQ(answer.body, "ok");
    EXPECT_TRUE(answer.head.keep_alive);
    EXPECT_EQ(answer.head.Get("x-gone"), "");
    EXPECT_EQ(std::ranges::count(answer.head.fields, "X-A", &http::Header::name), 2);
    // What the guest sent behind its answer went nowhere: the next request gets a connection of its own.
    SB_CO_TRYV(co_await client->Send("GET /next HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
    SB_CO_TRY(http::RawClient * next, co_await t->Guest());
    EXPECT_THAT(t->head_, StartsWith("GET /next "));
    SB_CO_TRYV(co_await next->Send("HTTP/1.0 200 OK\r\n\r\nuntil the end"));
    next->Close();
    SB_CO_TRY(std::string rest, co_await client->ReadToEnd());
    EXPECT_THAT(rest, AllOf(StartsWith("HTTP/1.1 200 OK\r\n"), HasSubstr("until the end")));
    co_return Result<>{};
  });
}

TEST_F(IngressTest, PiecesPassAtOnceAndBothWaysAtTheSameTime) {
  Run([](IngressTest* t) -> Task<> {
    SB_CO_TRY(http::RawClient * client,
              co_await t->Ask("POST /p HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"));
    SB_CO_TRY(http::RawClient * guest, co_await t->Guest());
    EXPECT_THAT(t->head_, HasSubstr("transfer-encoding: chunked\r\n"));
    if (!t->head_.contains("abc")) SB_CO_TRYV(co_await guest->ReadUntil("3\r\nabc\r\n"));
    SB_CO_TRYV(co_await guest->Send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nxy\r\n"));
    SB_CO_TRYV(co_await client->ReadUntil("2\r\nxy\r\n"));
    SB_CO_TRYV(co_await client->Send("1\r\nd\r\n0\r\n\r\n"));
    SB_CO_TRYV(co_await guest->ReadUntil("1\r\nd\r\n0\r\n\r\n"));
    SB_CO_TRYV(co_await guest->Send("0\r\n\r\n"));
    SB_CO_TRYV(co_await client->ReadUntil("0\r\n\r\n"));
    co_return Result<>{};
  });
}

TEST_F(IngressTest, AnEarlyAnswerEndsAnUploadThatNobodyReads) {
  Run([](IngressTest* t) -> Task<> {
    SB_CO_TRY(http::RawClient * client,
              co_await t->Ask("POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999\r\n\r\nbegin"));
    SB_CO_TRY(http::RawClient * guest, co_await t->Guest());
    SB_CO_TRYV(co_await guest->Send("HTTP/1.1 413 No\r\nContent-Length: 3\r\n\r\nbig"));
    SB_CO_TRY(auto answer, co_await client->ReadAnswer());
    EXPECT_EQ(answer.status, 413);
    EXPECT_FALSE(answer.head.keep_alive);
    co_return Result<>{};
  });
}

TEST_F(IngressTest, BadAnswersAreNotPassedOn) {
  Run([](IngressTest* t) -> Task<> {
    for (std::string bad :
         {"HTTP/1.1 101 X\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n", "HTTP/1.1 200 OK\nA: b\n\n",
          "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
          "HTTP/1.1 200 OK\r\nContent-Length: 1, 1\r\n\r\n", "HTTP/1.1 200 OK\r\nA : b\r\n\r\n", "nonsense\r\n\r\n",
          ""}) {
      SB_CO_TRY(auto answer, co_await t->AnswerTo(bad, true));
      EXPECT_EQ(answer.status, 502) << bad;
    }
    SB_CO_TRY(auto interim, co_await t->AnswerTo("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No\r\n\r\n", false));
    EXPECT_EQ(interim.status, 204);
    co_return Result<>{};
  });
}

TEST_F(IngressTest, AnAnswerCutShortIsNotMadeWhole) {
  Run([](IngressTest* t) -> Task<> {
    for (std::string head : {"Content-Length: 10", "Transfer-Encoding: chunked"}) {
      SB_CO_TRY(http::RawClient * client, co_await t->Ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
      SB_CO_TRY(http::RawClient * guest, co_await t->Guest());
      SB_CO_TRYV(co_await guest->Send("HTTP/1.1 200 OK\r\n" + head + "\r\n\r\n3\r\nabc\r\n"));
      guest->Close();
      SB_CO_TRY(std::string all, co_await client->ReadToEnd());
      EXPECT_THAT(all, AllOf(HasSubstr("abc"), Not(HasSubstr("\r\n0\r\n"))));
    }
    co_return Result<>{};
  });
}

TEST_F(IngressTest, WebSocketsJoinTheConnections) {
  Run([](IngressTest* t) -> Task<> {
    SB_CO_TRY(http::RawClient * client, co_await t->Ask("GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\n"
                                                        "Upgrade: websocket\r\nSec-WebSocket-Key: k\r\n\r\nearly"));
    SB_CO_TRY(http::RawClient * guest, co_await t->Guest());
    EXPECT_THAT(t->head_, AllOf(HasSubstr("connection: upgrade\r\nupgrade: websocket\r\n"),
                                HasSubstr("Sec-WebSocket-Key: k\r\n"), Not(HasSubstr("early"))));
    SB_CO_TRYV(
        co_await guest->Send("HTTP/1.1 101 Yes\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                             "Sec-WebSocket-Accept: h\r\n\r\nhello"));
    SB_CO_TRYV(co_await client->ReadUntil("HTTP/1.1 101 "));
    SB_CO_TRYV(co_await client->ReadUntil("Sec-WebSocket-Accept: h\r\n"));
    SB_CO_TRYV(co_await client->ReadUntil("connection: upgrade\r\n\r\nhello"));
    SB_CO_TRYV(co_await guest->ReadUntil("early"));
    SB_CO_TRYV(co_await client->Send("more"));
    SB_CO_TRYV(co_await guest->ReadUntil("more"));
    // One side's end is passed on, the other may still speak.
    guest->HalfClose();
    SB_CO_TRY(std::string end, co_await client->ReadToEnd());
    EXPECT_EQ(end, "");
    SB_CO_TRYV(co_await client->Send("last"));
    SB_CO_TRYV(co_await guest->ReadUntil("last"));
    co_return Result<>{};
  });
}

// What the guest sends together with its 101 reaches the client in a read of its own: not before the client speaks ...
TEST_F(IngressTest, AWebSocketsFirstBytesWaitForTheClient) {
  limits_.settle = std::chrono::hours(1);
  Run([](IngressTest* t) -> Task<> {
    SB_CO_TRY(http::RawClient * client, co_await t->Ask("GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\n"
                                                        "Upgrade: websocket\r\nSec-WebSocket-Key: k\r\n\r\n"));
    SB_CO_TRY(http::RawClient * guest, co_await t->Guest());
    SB_CO_TRYV(co_await guest->Send("HTTP/1.1 101 Yes\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nhello"));
    std::string head;
    while (!head.contains("\r\n\r\n")) {
      SB_CO_TRY(std::string piece, co_await client->ReadSome());
      if (piece.empty()) break;
      head += piece;
    }
    // A whole exchange later, on the same loop, there is still nothing behind the 101.
    SB_CO_TRY(auto other, co_await t->AnswerTo("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", false));
    EXPECT_EQ(other.body, "hi");
    EXPECT_TRUE(head.ends_with("\r\n\r\n")) << head;
    if (!head.ends_with("\r\n\r\n")) co_return Result<>{};
    boost::system::error_code ec;
    EXPECT_EQ(client->socket().available(ec), 0U);
    SB_CO_TRYV(co_await client->Send("ready"));
    SB_CO_TRYV(co_await guest->ReadUntil("ready"));
    SB_CO_TRYV(co_await client->ReadUntil("hello"));
    co_return Result<>{};
  });
}

// ... or has had its time.
TEST_F(IngressTest, AWebSocketsFirstBytesComeToASilentClientToo) {
  limits_.settle = std::chrono::milliseconds(1);
  Run([](IngressTest* t) -> Task<> {
    SB_CO_TRY(http::RawClient * client, co_await t->Ask("GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\n"
                                                        "Upgrade: websocket\r\nSec-WebSocket-Key: k\r\n\r\n"));
    SB_CO_TRY(http::RawClient * guest, co_await t->Guest());
    SB_CO_TRYV(co_await guest->Send("HTTP/1.1 101 Yes\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nhello"));
    SB_CO_TRYV(co_await client->ReadUntil("hello"));
    SB_CO_TRYV(co_await guest->Send(" again"));
    SB_CO_TRYV(co_await client->ReadUntil(" again"));
    co_return Result<>{};
  });
}

TEST_F(IngressTest, AGuestThatNeverAnswersIsGivenUp) {
  limits_.answer = std::chrono::seconds(0);
  Run([](IngressTest* t) -> Task<> {
    SB_CO_TRY(http::RawClient * client, co_await t->Ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
    SB_CO_TRY(auto answer, co_await client->ReadAnswer());
    EXPECT_EQ(answer.status, 504);
    co_return Result<>{};
  });
}

TEST_F(IngressTest, TheGuestLearnsThatTheClientLeft) {
  Run([](IngressTest* t) -> Task<> {
    SB_CO_TRY(http::RawClient * client, co_await t->Ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
    SB_CO_TRY(http::RawClient * guest, co_await t->Guest());
    SB_CO_TRYV(co_await guest->Send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n"));
    SB_CO_TRYV(co_await client->ReadUntil("data: 1\n\n"));
    client->Close();
    SB_CO_TRY(std::string end, co_await guest->ReadToEnd());
    EXPECT_EQ(end, "");
    co_return Result<>{};
  });
}

}  // namespace
}  // namespace sandbar::ingress
