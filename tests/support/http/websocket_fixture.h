// For the tests of WebSockets: a server whose paths are sessions, clients of ours, and peers that send exactly the
// bytes that they are told to.
#pragma once

#include <gtest/gtest.h>

#include <deque>

#include "http/websocket.h"
#include "support/http/raw_client.h"

namespace sandbar::http {

// A connection that speaks WebSocket by hand, as a client.
class RawPeer {
 public:
  explicit RawPeer(const asio::any_io_executor& ex) : client_(ex) {}

  static std::string Handshake(const std::string& path, const std::string& more = "") {
    return "GET " + path +
           " HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
           "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n" +
           more + "\r\n";
  }
  static std::string Frame(WebSocketKind kind, std::string_view payload) {
    std::string out;
    wire::AppendFrame(out, kind, payload, wire::WebSocketMask{1, 2, 3, 4});
    return out;
  }

  // `early` is sent with the handshake. Returns the head of the 101.
  Task<std::string> Open(uint16_t port, std::string path, std::string early = "", std::string fields = "") {
    SB_CO_TRYV(co_await client_.Connect(port));
    SB_CO_TRYV(co_await client_.Send(Handshake(path, fields) + early));
    while (!pending_.contains("\r\n\r\n")) {
      SB_CO_TRY(std::string piece, co_await client_.ReadSome());
      if (piece.empty()) co_return Fail(Code::kClosed, "no answer: " + pending_);
      pending_ += piece;
    }
    const size_t end = pending_.find("\r\n\r\n") + 4;
    std::string head = pending_.substr(0, end);
    pending_.erase(0, end);
    co_return head;
  }
  Task<> Send(std::string bytes) { return client_.Send(std::move(bytes)); }
  Task<> Send(WebSocketKind kind, std::string payload) { return client_.Send(Frame(kind, payload)); }
  // kClosed when the server ended the connection.
  Task<WebSocketMessage> Read() {
    while (true) {
      std::optional<WebSocketMessage> message;
      SB_CO_TRY(size_t used, decoder_.Feed(pending_, &message));
      pending_.erase(0, used);
      if (message) co_return *std::move(message);
      SB_CO_TRY(std::string piece, co_await client_.ReadSome());
      if (piece.empty()) co_return Fail(Code::kClosed, "the server ended the connection");
      pending_ += piece;
    }
  }
  // The next one that is no ping.
  Task<WebSocketMessage> ReadData() {
    while (true) {
      SB_CO_TRY(WebSocketMessage message, co_await Read());
      if (message.kind != WebSocketKind::kPing) co_return message;
    }
  }
  void Disconnect() { client_.Close(); }

 private:
  RawClient client_;
  std::string pending_;
  wire::WebSocketDecoder decoder_{WebSocketRole::kClient, 64 << 20};
};

class WebSocketTest : public testing::Test {
 public:
  using Body = Task<> (*)(WebSocketTest*);

  // Runs the test's coroutine against a server, then closes the server and runs the loop dry.
  void Run(Body body, HttpServerOptions options = {}) {
    const bool tls = !options.tls_cert_file.empty();
    auto listening = ListenHttp(
        io_.get_executor(), "127.0.0.1", 0, std::move(options), [this](HttpExchange* x) { return Handle(x); },
        [](const Error& e) {
          return HttpResponse{.status = e.code == Code::kBadRequest ? 400 : 500, .body = e.message};
        });
    ASSERT_TRUE(listening) << listening.error().message;
    server_ = std::move(*listening);
    url_ = (tls ? "wss://127.0.0.1:" : "ws://127.0.0.1:") + std::to_string(server_->port());
    asio::co_spawn(io_, Supervise(body), Rethrow);
    io_.run();
    ASSERT_TRUE(finished_);
    EXPECT_TRUE(outcome_) << outcome_.error().message;
  }

  // A raw peer with a session of the server.
  Task<RawPeer*> Open(std::string path) {
    RawPeer* peer = &peers_.emplace_back(io_.get_executor());
    SB_CO_TRYV(co_await peer->Open(server_->port(), std::move(path)));
    co_return peer;
  }
  // A session of our client with a session of the server.
  Task<> Talk(std::string path, WebSocketSession session) {
    ClientRequest request{.url = url_ + path};
    SB_CO_TRY(UpgradeAnswer answer, co_await DialWebSocket(std::move(request), client_options_));
    if (!answer.stream) co_return Fail(Code::kForbidden, answer.body);
    co_return co_await RunWebSocket(answer.stream.get(), WebSocketRole::kClient, options_, std::move(session));
  }
  // What the session of the server ended with: "" or the error. Sessions that have ended are counted.
  Task<> WaitEnded(size_t sessions = 1) {
    while (ended_.size() < sessions) SB_CO_TRYV(co_await changed_.Wait());
    co_return Result<>{};
  }

  asio::io_context io_{1};
  std::unique_ptr<HttpServer> server_;
  std::string url_;
  WebSocketOptions options_;
  HttpClientOptions client_options_;
  std::deque<RawPeer> peers_;
  Event changed_{io_.get_executor()};
  std::vector<Result<>> ended_;
  std::optional<WebSocketMessage> closed_by_peer_;  // seen by /echo
  uint64_t written_ = 0;                            // by /flood
  bool gave_up_ = false;                            // /impatient has

  Task<> Echo(WebSocket* ws) {
    while (true) {
      SB_CO_TRY(WebSocketMessage message, co_await ws->Read());
      if (message.kind == WebSocketKind::kClose) {
        closed_by_peer_ = std::move(message);
        co_return Result<>{};
      }
      SB_CO_TRYV(co_await ws->Write(message.kind, std::move(message.data)));
    }
  }

 private:
  asio::awaitable<void> Supervise(Body body) {
    outcome_ = co_await body(this);
    co_await server_->Close();
    for (auto& p : peers_) p.Disconnect();
    server_.reset();
    finished_ = true;
  }

  Task<> Handle(HttpExchange* x) {
    const std::string& path = x->request().path;
    WebSocketSession session = [this](WebSocket* ws) { return Echo(ws); };
    if (path == "/flood") session = [this](WebSocket* ws) { return Flood(ws); };
    if (path == "/both") session = [this](WebSocket* ws) { return FloodAndRead(ws); };
    if (path == "/close") session = [](WebSocket* ws) { return ws->Close(4000, "that is all"); };
    if (path == "/return") session = Return;
    if (path == "/fail") session = GiveError;
    if (path == "/retry") session = Retry;
    if (path == "/impatient") session = [this](WebSocket* ws) { return Impatient(ws); };
    auto ended = co_await Serve(x, std::move(session));
    ended_.push_back(ended);
    changed_.Notify();
    co_return ended;
  }

  Task<> Serve(HttpExchange* x, WebSocketSession session) {
    if (x->request().path == "/refuse") {
      HttpResponse refusal{.status = 401, .body = "who are you"};
      co_return co_await x->Respond(std::move(refusal));
    }
    if (x->request().path == "/other-key") {
      std::vector<Header> fields{{"upgrade", "websocket"}, {"sec-websocket-accept", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="}};
      SB_CO_TRYV(co_await x->Upgrade(std::move(fields)));
      co_return Result<>{};
    }
    auto serve = ServeWebSocket(x, options_, std::move(session));
    if (x->request().path != "/expire") co_return co_await std::move(serve);
    co_return co_await WithTimeout(std::move(serve), std::chrono::milliseconds(100));
  }

  static Task<> Return(WebSocket*) { co_return Result<>{}; }
  static Task<> GiveError(WebSocket*) { co_return Fail(Code::kIo, "the disk is on fire"); }
  // Cancels something of its own and goes on.
  static Task<> Retry(WebSocket* ws) {
    for (int i = 0; i < 3; ++i) {
      auto read = ws->Read();
      auto message = co_await WithTimeout(std::move(read), std::chrono::milliseconds(10));
      EXPECT_FALSE(message);
    }
    SB_CO_TRYV(co_await ws->Write(WebSocketKind::kText, "now"));
    SB_CO_TRY(WebSocketMessage message, co_await ws->Read());
    co_return co_await ws->Write(message.kind, message.data);
  }
  // Gives a message up when the peer does not take it.
  Task<> Impatient(WebSocket* ws) {
    while (true) {
      std::string piece(64 << 10, 'x');
      auto write = ws->Write(WebSocketKind::kBinary, std::move(piece));
      auto written = co_await WithTimeout(std::move(write), std::chrono::milliseconds(20));
      if (!written && written.error().code == Code::kTimeout) break;
      if (!written) co_return written;
    }
    gave_up_ = true;
    changed_.Notify();
    std::string last = "the last";
    co_return co_await ws->Write(WebSocketKind::kText, std::move(last));
  }
  Task<> Flood(WebSocket* ws) {
    for (int i = 0; i < 1024; ++i) {
      std::string piece(64 << 10, static_cast<char>('a' + i % 26));
      SB_CO_TRYV(co_await ws->Write(WebSocketKind::kBinary, std::move(piece)));
      written_ += 64 << 10;
      changed_.Notify();
    }
    co_return Result<>{};
  }
  Task<> FloodAndRead(WebSocket* ws) {
    using namespace asio::experimental::awaitable_operators;
    auto ended = co_await (Flood(ws) && Echo(ws));
    co_return std::get<1>(std::move(ended));
  }

  Result<> outcome_;
  bool finished_ = false;
};

}  // namespace sandbar::http
