// For the tests of the HTTP server: a server with handlers that do all the things a handler may do, right and wrong.
#pragma once

#include <gtest/gtest.h>

#include <deque>

#include "http/server.h"
#include "support/http/raw_client.h"

namespace sandbar::http {

inline std::string Get(const std::string& path, const std::string& more = "") {
  return "GET " + path + " HTTP/1.1\r\nHost: a\r\n" + more + "\r\n";
}

class HttpServerTest : public testing::Test {
 public:
  using Body = Task<> (*)(HttpServerTest*);

  // Runs the test's coroutine against a server, then closes the server and runs the loop dry.
  void Run(Body body, HttpServerOptions options = {}) {
    auto listening = ListenHttp(
        io_.get_executor(), "127.0.0.1", 0, options, [this](HttpExchange* x) { return Handle(x); },
        [](const Error& e) {
          const int status = e.code == Code::kBadRequest ? 400 : e.code == Code::kTooLarge ? 413 : 500;
          return HttpResponse{.status = status, .body = e.message};
        });
    ASSERT_TRUE(listening) << listening.error().message;
    server_ = std::move(*listening);
    asio::co_spawn(io_, Supervise(body), Rethrow);
    io_.run();
    ASSERT_TRUE(finished_);
    EXPECT_TRUE(outcome_) << outcome_.error().message;
  }

  Task<RawClient*> Dial() {
    RawClient* client = &clients_.emplace_back(io_.get_executor());
    SB_CO_TRYV(co_await client->Connect(server_->port()));
    co_return client;
  }

  // A connection that sends `bytes` and reads one answer.
  Task<RawClient::Answer> Ask(std::string bytes) {
    SB_CO_TRY(RawClient * client, co_await Dial());
    SB_CO_TRYV(co_await client->Send(std::move(bytes)));
    co_return co_await client->ReadAnswer();
  }

  asio::io_context io_{1};
  std::unique_ptr<HttpServer> server_;
  std::deque<RawClient> clients_;
  void Go() {
    may_go_ = true;
    go_.Notify();
  }
  Task<> WaitGo() {
    while (!may_go_) SB_CO_TRYV(co_await go_.Wait());
    may_go_ = false;
    co_return Result<>{};
  }

  // Until so many requests have reached their handlers.
  Task<> WaitHandled(int count) {
    while (handled_ < count) SB_CO_TRYV(co_await reached_.Wait());
    co_return Result<>{};
  }
  // A whole exchange on a connection of its own. When it is over, the server has read what others sent before it.
  Task<> Meanwhile() {
    SB_CO_TRY(auto answer, co_await Ask(Get("/meanwhile", "Connection: close\r\n")));
    EXPECT_EQ(answer.status, 200);
    co_return Result<>{};
  }

  bool may_go_ = false;
  Event go_{io_.get_executor()};
  Event noticed_{io_.get_executor()};
  Event reached_{io_.get_executor()};
  int handled_ = 0;  // requests that have reached their handler
  uint64_t written_ = 0;
  bool flood_cut_ = false;
  uint64_t read_ = 0;
  std::string handler_saw_;

 private:
  asio::awaitable<void> Supervise(Body body) {
    outcome_ = co_await body(this);
    co_await server_->Close();
    for (auto& c : clients_) c.Close();
    server_.reset();
    finished_ = true;
  }

  Task<> Handle(HttpExchange* x) {
    ++handled_;
    reached_.Notify();
    const std::string& path = x->request().path;
    if (path == "/echo") return Echo(x);
    if (path == "/ignore-body") return Answer(x, "ignored");
    if (path == "/count") return Count(x);
    if (path == "/limited") return Limited(x);
    if (path == "/stream") return Stream(x);
    if (path == "/length") return Length(x);
    if (path == "/flood") return Flood(x);
    if (path == "/whole") return Whole(x);
    if (path == "/unfinished") return Unfinished(x);
    if (path == "/no-answer") return NoAnswer(x);
    if (path == "/error") return GiveError(x);
    if (path == "/throw") return Throw(x);
    if (path == "/wait-closed") return WaitGone(x);
    if (path == "/race-closed") return RaceGone(x);
    if (path == "/wait-go") return LateAnswer(x);
    if (path == "/no-content") return NoContent(x);
    if (path == "/vouch") x->Vouch();
    return Answer(x, x->request().method + " " + path + " " + x->request().query);
  }

  static Task<> Answer(HttpExchange* x, std::string text) {
    HttpResponse response{.body = std::move(text)};
    co_return co_await x->Respond(std::move(response));
  }
  static Task<> Echo(HttpExchange* x) {
    SB_CO_TRY(std::string body, co_await x->ReadAll(100 << 20));
    HttpResponse response{.body = std::move(body), .headers = {{"x-seen", std::string(x->request().Get("X-Sent"))}}};
    co_return co_await x->Respond(std::move(response));
  }
  static Task<> Limited(HttpExchange* x) {
    SB_CO_TRY(std::string body, co_await x->ReadAll(1000));
    co_return co_await Answer(x, std::move(body));
  }
  Task<> Count(HttpExchange* x) {
    size_t largest = 0;
    while (true) {
      SB_CO_TRY(std::string piece, co_await x->ReadBody());
      if (piece.empty()) break;
      read_ += piece.size();
      largest = std::max(largest, piece.size());
    }
    EXPECT_LE(largest, 64U << 10);
    co_return co_await Answer(x, std::to_string(read_));
  }
  Task<> Stream(HttpExchange* x) {
    std::vector<Header> headers = {{"x-a", "b"}};
    SB_CO_TRYV(co_await x->StartStream(200, "application/x-ndjson", std::move(headers), std::nullopt));
    SB_CO_TRYV(co_await x->Write("A\n"));
    SB_CO_TRYV(co_await x->Write(""));
    SB_CO_TRYV(co_await WaitGo());
    SB_CO_TRYV(co_await x->Write("B\n"));
    co_return co_await x->Finish();
  }
  static Task<> Length(HttpExchange* x) {
    std::vector<Header> none;
    SB_CO_TRYV(co_await x->StartStream(200, "text/plain", std::move(none), 6));
    SB_CO_TRYV(co_await x->Write("abc"));
    if (x->request().query == "short") co_return co_await x->Finish();
    auto too_much = co_await x->Write("defg");
    EXPECT_FALSE(too_much);
    SB_CO_TRYV(co_await x->Write("def"));
    co_return co_await x->Finish();
  }
  Task<> Flood(HttpExchange* x) {
    std::vector<Header> none;
    SB_CO_TRYV(co_await x->StartStream(200, "text/plain", std::move(none), std::nullopt));
    for (int i = 0; i < 1024; ++i) {
      std::string piece(64 << 10, 'x');
      auto sent = co_await x->Write(std::move(piece));
      if (!sent) {
        flood_cut_ = true;
        noticed_.Notify();
        co_return sent;
      }
      written_ += 64 << 10;
    }
    co_return co_await x->Finish();
  }
  Task<> Whole(HttpExchange* x) {
    std::string body(64 << 20, 'x');
    auto sent = co_await Answer(x, std::move(body));
    handler_saw_ = sent ? "taken" : "not taken";
    noticed_.Notify();
    co_return sent;
  }
  static Task<> Unfinished(HttpExchange* x) {
    std::vector<Header> none;
    SB_CO_TRYV(co_await x->StartStream(200, "text/plain", std::move(none), std::nullopt));
    SB_CO_TRYV(co_await x->Write("partial"));
    co_return Fail(Code::kIo, "the source broke");
  }
  static Task<> NoAnswer(HttpExchange*) { co_return Result<>{}; }
  static Task<> GiveError(HttpExchange*) { co_return Fail(Code::kTooLarge, "too much of it"); }
  static Task<> Throw(HttpExchange*) {
    throw std::runtime_error("oops");
    co_return Result<>{};
  }
  static Task<> NoContent(HttpExchange* x) {
    HttpResponse response{.status = 204, .content_type = "", .body = "dropped"};
    co_return co_await x->Respond(std::move(response));
  }
  Task<> WaitGone(HttpExchange* x) {
    auto gone = co_await x->WaitClosed();
    handler_saw_ = gone ? "gone" : gone.error().message;
    noticed_.Notify();
    co_return Fail(Code::kClosed, "nobody to answer");
  }
  // What a handler does that waits for something or for the client to give up.
  Task<> RaceGone(HttpExchange* x) {
    using namespace asio::experimental::awaitable_operators;
    auto first = co_await (WaitGo() || x->WaitClosed());
    handler_saw_ = first.index() == 0 ? "go" : "gone";
    co_return co_await Answer(x, "raced");
  }
  Task<> LateAnswer(HttpExchange* x) {
    auto waited = co_await WaitGo();
    handler_saw_ = waited ? "go" : waited.error().message;
    // Clean-up after a cancellation may await, and what uses the connection fails at once.
    auto slept = co_await Sleep(std::chrono::milliseconds(1));
    EXPECT_TRUE(slept);
    auto answered = co_await Answer(x, "late");
    EXPECT_EQ(answered.has_value(), waited.has_value());
    co_return Result<>{};
  }

  Result<> outcome_;
  bool finished_ = false;
};

}  // namespace sandbar::http
