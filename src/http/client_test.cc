#include "http/client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/http/raw_client.h"

namespace sandbar::http {
namespace {

using asio::ip::tcp;
using testing::HasSubstr;

Task<> Serve(HttpExchange* x) {
  if (x->request().path == "/refuse") {
    HttpResponse refusal{.status = 413, .body = "no"};
    co_return co_await x->Respond(std::move(refusal));
  }
  if (x->request().path == "/stream") {
    std::vector<Header> none;
    SB_CO_TRYV(co_await x->StartStream(200, "text/plain", std::move(none), std::nullopt));
    for (int i = 0; i < 100; ++i) {
      std::string piece(100000, static_cast<char>('a' + i % 26));
      SB_CO_TRYV(co_await x->Write(std::move(piece)));
    }
    co_return co_await x->Finish();
  }
  if (x->request().path == "/gone") {
    auto gone = co_await x->WaitClosed();
    co_return gone;
  }
  SB_CO_TRY(std::string body, co_await x->ReadAll(100 << 20));
  HttpResponse response{.body = x->request().method + " " + std::to_string(body.size()),
                        .headers = {{"x-peer", x->peer()}, {"x-host", std::string(x->request().Get("host"))}}};
  co_return co_await x->Respond(std::move(response));
}

class HttpClientTest : public testing::Test {
 public:
  using Body = Task<> (*)(HttpClientTest*);

  void Run(Body body, HttpServerOptions options = {}, HttpClientOptions client = {}) {
    auto listening = ListenHttp(io_.get_executor(), "127.0.0.1", 0, options, Serve,
                                [](const Error& e) { return HttpResponse{.status = 500, .body = e.message}; });
    ASSERT_TRUE(listening) << listening.error().message;
    server_ = std::move(*listening);
    url_ =
        (options.tls_cert_file.empty() ? "http://127.0.0.1:" : "https://127.0.0.1:") + std::to_string(server_->port());
    client_ = MakeHttpClient(io_.get_executor(), std::move(client));
    asio::co_spawn(io_, Supervise(body), Rethrow);
    io_.run();
    ASSERT_TRUE(finished_);
    EXPECT_TRUE(outcome_) << outcome_.error().message;
  }

  struct Got {
    int status = 0;
    std::string body;
    std::string peer;
  };
  Task<Got> Ask(std::string path, std::string method = "GET", std::string body = "") {
    ClientRequest request{.method = std::move(method), .url = url_ + path, .body = std::move(body)};
    SB_CO_TRY(auto response, co_await client_->Send(std::move(request)));
    Got got{response->head().status, "", std::string(response->head().Get("X-Peer"))};
    SB_CO_TRY(got.body, co_await response->ReadAll(64 << 20));
    co_return got;
  }

  // Answers one connection after the other with the given bytes, each after a whole request head, and closes it.
  void Script(std::vector<std::string> answers) {
    acceptor_.emplace(io_, tcp::endpoint(asio::ip::address_v4::loopback(), 0));
    url_ = "http://127.0.0.1:" + std::to_string(acceptor_->local_endpoint().port());
    tasks_.Spawn(PlayScript(std::move(answers)));
  }

  asio::io_context io_{1};
  std::unique_ptr<HttpServer> server_;
  std::unique_ptr<HttpClient> client_;
  std::string url_;

 private:
  Task<> PlayScript(std::vector<std::string> answers) {
    for (const std::string& answer : answers) {
      tcp::socket socket(io_);
      auto [ec] = co_await acceptor_->async_accept(socket, kToken);
      if (ec) co_return std::unexpected(FromAsio(ec, "accept"));
      std::string seen;
      std::string chunk(4096, '\0');
      while (!seen.contains("\r\n\r\n")) {
        auto buffer = asio::buffer(chunk);
        auto [read_ec, n] = co_await socket.async_read_some(buffer, kToken);
        if (read_ec) break;
        seen += chunk.substr(0, n);
      }
      auto reply = asio::buffer(answer);
      co_await asio::async_write(socket, reply, kToken);
    }
    co_return Result<>{};
  }

  asio::awaitable<void> Supervise(Body body) {
    outcome_ = co_await body(this);
    client_.reset();
    co_await server_->Close();
    co_await tasks_.Close();
    acceptor_.reset();
    server_.reset();
    finished_ = true;
  }

  Result<> outcome_;
  bool finished_ = false;
  std::optional<tcp::acceptor> acceptor_;
  TaskGroup tasks_{io_.get_executor()};
};

TEST_F(HttpClientTest, ReusesItsConnection) {
  Run([](HttpClientTest* t) -> Task<> {
    SB_CO_TRY(auto first, co_await t->Ask("/"));
    SB_CO_TRY(auto second, co_await t->Ask("/", "POST", "abc"));
    SB_CO_TRY(auto head, co_await t->Ask("/", "HEAD"));
    SB_CO_TRY(auto third, co_await t->Ask("/", "POST", std::string(5 << 20, 'x')));
    EXPECT_EQ(first.body, "GET 0");
    EXPECT_EQ(second.body, "POST 3");
    EXPECT_EQ(head.body, "");
    EXPECT_EQ(third.body, "POST 5242880");
    EXPECT_NE(first.peer, "");
    EXPECT_EQ(first.peer, second.peer);
    EXPECT_EQ(first.peer, head.peer);
    EXPECT_EQ(first.peer, third.peer);
    co_return Result<>{};
  });
}

TEST_F(HttpClientTest, StreamsDown) {
  Run([](HttpClientTest* t) -> Task<> {
    ClientRequest request{.url = t->url_ + "/stream"};
    SB_CO_TRY(auto response, co_await t->client_->Send(std::move(request)));
    size_t total = 0;
    while (true) {
      SB_CO_TRY(std::string piece, co_await response->Read());
      if (piece.empty()) break;
      total += piece.size();
    }
    EXPECT_EQ(total, 10000000U);
    SB_CO_TRY(std::string end, co_await response->Read());
    EXPECT_EQ(end, "");
    co_return Result<>{};
  });
}

TEST_F(HttpClientTest, ADroppedResponseDropsItsConnection) {
  Run([](HttpClientTest* t) -> Task<> {
    ClientRequest request{.url = t->url_ + "/stream"};
    SB_CO_TRY(auto response, co_await t->client_->Send(std::move(request)));
    response.reset();
    SB_CO_TRY(auto next, co_await t->Ask("/"));
    EXPECT_EQ(next.body, "GET 0");
    co_return Result<>{};
  });
}

// Yields `left` pieces of 100000 bytes, then fails or ends.
Task<std::string> Piece(int* left, bool fail) {
  if (--*left >= 0) co_return std::string(100000, 'x');
  if (fail) co_return Fail(Code::kIo, "disk gone");
  co_return std::string();
}

TEST_F(HttpClientTest, StreamsUp) {
  Run([](HttpClientTest* t) -> Task<> {
    int left = 50;
    BodyProducer body = [&left] { return Piece(&left, false); };
    ClientRequest chunked{.method = "POST", .url = t->url_ + "/"};
    SB_CO_TRY(auto response, co_await t->client_->SendStreaming(std::move(chunked), body));
    SB_CO_TRY(std::string answer, co_await response->ReadAll(1000));
    EXPECT_EQ(answer, "POST 5000000");
    left = 50;
    ClientRequest sized{.method = "PUT", .url = t->url_ + "/", .headers = {{"Content-Length", "5000000"}}};
    SB_CO_TRY(response, co_await t->client_->SendStreaming(std::move(sized), body));
    SB_CO_TRY(answer, co_await response->ReadAll(1000));
    EXPECT_EQ(answer, "PUT 5000000");
    co_return Result<>{};
  });
}

TEST_F(HttpClientTest, AProducersErrorIsTheCallsError) {
  Run([](HttpClientTest* t) -> Task<> {
    int left = 3;
    BodyProducer body = [&left] { return Piece(&left, true); };
    ClientRequest request{.method = "POST", .url = t->url_ + "/"};
    auto response = co_await t->client_->SendStreaming(std::move(request), std::move(body));
    EXPECT_EQ(response.error().message, "disk gone");
    co_return Result<>{};
  });
}

TEST_F(HttpClientTest, AnEarlyAnswerEndsTheUpload) {
  Run([](HttpClientTest* t) -> Task<> {
    int left = 1000000;  // 100 GB: only an early answer ends this
    BodyProducer body = [&left] { return Piece(&left, false); };
    ClientRequest request{.method = "POST", .url = t->url_ + "/refuse"};
    SB_CO_TRY(auto response, co_await t->client_->SendStreaming(std::move(request), std::move(body)));
    EXPECT_EQ(response->head().status, 413);
    EXPECT_GT(left, 0);
    SB_CO_TRY(auto next, co_await t->Ask("/"));
    EXPECT_EQ(next.body, "GET 0");
    co_return Result<>{};
  });
}

TEST_F(HttpClientTest, OddServers) {
  Run([](HttpClientTest* t) -> Task<> {
    t->Script({"HTTP/1.1 200 OK\r\n\r\nuntil close",
               "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nX: y\r\n\r\nHTTP/1.1 201 "
               "Created\r\nContent-Length: 2\r\n\r\nok",
               "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort",
               "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nshort\r\n", "", "SSH-2.0-OpenSSH\r\n\r\n",
               "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx"});
    SB_CO_TRY(auto until_close, co_await t->Ask("/"));
    EXPECT_EQ(until_close.body, "until close");
    SB_CO_TRY(auto interim, co_await t->Ask("/"));
    EXPECT_EQ(interim.status, 201);
    EXPECT_EQ(interim.body, "ok");
    for (Code expected : {Code::kClosed, Code::kClosed, Code::kClosed, Code::kProtocol, Code::kProtocol}) {
      auto got = co_await t->Ask("/");
      const Error error = got ? Error{Code::kInternal, "answered"} : got.error();
      EXPECT_EQ(error.code, expected) << error.message;
    }
    co_return Result<>{};
  });
}

TEST_F(HttpClientTest, AnswersAreBounded) {
  Run([](HttpClientTest* t) -> Task<> {
    ClientRequest request{.url = t->url_ + "/stream"};
    SB_CO_TRY(auto response, co_await t->client_->Send(std::move(request)));
    auto all = co_await response->ReadAll(1000000);
    EXPECT_EQ(all.error().code, Code::kTooLarge);
    co_return Result<>{};
  });
}

TEST_F(HttpClientTest, Unreachable) {
  Run([](HttpClientTest* t) -> Task<> {
    t->Script({});
    const std::string dead = t->url_;
    t->Script({});  // the first listener is gone now
    t->url_ = dead;
    auto refused = co_await t->Ask("/");
    EXPECT_EQ(refused.error().code, Code::kUnavailable);
    t->url_ = "gopher://x";
    auto bad = co_await t->Ask("/");
    EXPECT_EQ(bad.error().code, Code::kBadRequest);
    co_return Result<>{};
  });
}

TEST_F(HttpClientTest, ConnectingHasADeadline) {
  Run(
      [](HttpClientTest* t) -> Task<> {
        t->Script({});  // takes connections into its backlog but never speaks
        t->url_.replace(0, 4, "https");
        auto silent = co_await t->Ask("/");
        EXPECT_EQ(silent.error().code, Code::kTimeout);
        co_return Result<>{};
      },
      {}, HttpClientOptions{.connect_timeout = std::chrono::milliseconds(100)});
}

TEST_F(HttpClientTest, CancellingACallFreesTheServersHandler) {
  Run([](HttpClientTest* t) -> Task<> {
    auto ask = t->Ask("/gone");
    auto cancelled = co_await WithTimeout(std::move(ask), std::chrono::milliseconds(50));
    EXPECT_EQ(cancelled.error().code, Code::kTimeout);
    SB_CO_TRY(auto next, co_await t->Ask("/"));
    EXPECT_EQ(next.body, "GET 0");
    co_return Result<>{};
  });
}

TEST_F(HttpClientTest, Tls) {
  TestCertificate certificate;
  Run(
      [](HttpClientTest* t) -> Task<> {
        SB_CO_TRY(auto first, co_await t->Ask("/", "POST", std::string(5 << 20, 'x')));
        EXPECT_EQ(first.body, "POST 5242880");
        SB_CO_TRY(auto stream, co_await t->Ask("/stream"));
        EXPECT_EQ(stream.body.size(), 10000000U);
        SB_CO_TRY(auto again, co_await t->Ask("/"));
        EXPECT_EQ(again.peer, first.peer);
        t->url_.replace(t->url_.find("127.0.0.1"), 9, "localhost");
        SB_CO_TRY(auto by_name, co_await t->Ask("/"));
        EXPECT_EQ(by_name.status, 200);
        auto gone = t->Ask("/gone");
        auto cancelled = co_await WithTimeout(std::move(gone), std::chrono::milliseconds(50));
        EXPECT_EQ(cancelled.error().code, Code::kTimeout);
        co_return Result<>{};
      },
      HttpServerOptions{.tls_cert_file = certificate.cert(), .tls_key_file = certificate.key()},
      HttpClientOptions{.ca_file = certificate.cert()});
}

TEST_F(HttpClientTest, TlsRefusesStrangers) {
  TestCertificate certificate;
  Run(
      [](HttpClientTest* t) -> Task<> {
        auto unknown = co_await t->Ask("/");
        EXPECT_EQ(unknown.error().code, Code::kUnavailable);
        EXPECT_THAT(unknown.error().message, HasSubstr("certificate was refused"));
        // Plain HTTP to a TLS port: no answer that looks like one.
        t->url_.replace(0, 5, "http");
        auto plain = co_await t->Ask("/");
        EXPECT_FALSE(plain);
        co_return Result<>{};
      },
      HttpServerOptions{.tls_cert_file = certificate.cert(), .tls_key_file = certificate.key()});
}

TEST_F(HttpClientTest, TlsVerifiesTheName) {
  TestCertificate certificate("DNS:other.test");
  Run(
      [](HttpClientTest* t) -> Task<> {
        auto wrong = co_await t->Ask("/");
        EXPECT_THAT(wrong.error().message, HasSubstr("certificate was refused"));
        co_return Result<>{};
      },
      HttpServerOptions{.tls_cert_file = certificate.cert(), .tls_key_file = certificate.key()},
      HttpClientOptions{.ca_file = certificate.cert()});
}

}  // namespace
}  // namespace sandbar::http
