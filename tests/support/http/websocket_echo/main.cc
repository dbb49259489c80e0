// The WebSocket layer as a program, so that other implementations can be tried against it: see
// tests/clients/websocket.test.mjs.
//
//   websocket-echo serve             listens on loopback, prints the port, echoes messages. A text "close 4000 why"
//                                    closes, "flood 100" sends 100 messages of 64 KiB. Ends with its standard input.
//   websocket-echo talk ws://…       sends messages to an echo server, compares what comes back, closes with 4001
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <cstdio>
#include <string>
#include <vector>

#include "async/task.h"
#include "http/websocket.h"

namespace sandbar {
namespace {

using http::WebSocket;
using http::WebSocketKind;
using http::WebSocketMessage;

constexpr size_t kPiece = 64 << 10;

Task<> Flood(WebSocket* ws, int messages) {
  for (int i = 0; i < messages; ++i) {
    std::string piece(kPiece, static_cast<char>(i));
    SB_CO_TRYV(co_await ws->Write(WebSocketKind::kBinary, std::move(piece)));
  }
  co_return Result<>{};
}

Task<> Echo(WebSocket* ws) {
  while (true) {
    SB_CO_TRY(WebSocketMessage message, co_await ws->Read());
    if (message.kind == WebSocketKind::kClose) co_return Result<>{};
    const bool text = message.kind == WebSocketKind::kText;
    if (text && message.data.starts_with("close ")) {
      const auto code = static_cast<uint16_t>(std::stoi(message.data.substr(6, 4)));
      std::string reason = message.data.substr(11);
      co_return co_await ws->Close(code, std::move(reason));
    }
    if (text && message.data.starts_with("flood ")) {
      SB_CO_TRYV(co_await Flood(ws, std::stoi(message.data.substr(6))));
      continue;
    }
    SB_CO_TRYV(co_await ws->Write(message.kind, std::move(message.data)));
  }
}

Task<> Handle(http::HttpExchange* x) {
  http::WebSocketOptions options;
  if (x->request().path == "/pings") options.ping_every = std::chrono::milliseconds(20);
  co_return co_await http::ServeWebSocket(x, options, Echo);
}

Task<> Say(WebSocket* ws) {
  for (size_t size : {0, 5, 125, 126, 65535, 65536, 1'000'000}) {
    const std::string sent(size, static_cast<char>('a' + size % 26));
    const WebSocketKind kind = size % 2 == 0 ? WebSocketKind::kText : WebSocketKind::kBinary;
    SB_CO_TRYV(co_await ws->Write(kind, sent));
    SB_CO_TRY(WebSocketMessage got, co_await ws->Read());
    if (got.kind != kind || got.data != sent) co_return Fail(Code::kProtocol, "the echo differs");
  }
  co_return co_await ws->Close(4001, "that is all");
}

asio::awaitable<void> Serve() {
  auto ex = co_await asio::this_coro::executor;
  auto on_error = [](const Error& e) {
    return http::HttpResponse{.status = e.code == Code::kBadRequest ? 400 : 500, .body = e.message};
  };
  auto server = http::ListenHttp(ex, "127.0.0.1", 0, {}, Handle, on_error);
  SB_CHECK(server.has_value());
  std::printf("%d\n", (*server)->port());
  std::fflush(stdout);
  asio::posix::stream_descriptor input(ex, ::dup(STDIN_FILENO));
  co_await input.async_wait(asio::posix::stream_descriptor::wait_read, kToken);
  co_await (*server)->Close();
}

Task<> Talk(std::string url) {
  http::ClientRequest request{.url = std::move(url)};
  SB_CO_TRY(http::UpgradeAnswer answer, co_await http::DialWebSocket(std::move(request)));
  if (!answer.stream) co_return Fail(Code::kForbidden, "refused with " + std::to_string(answer.status));
  http::ByteStream* stream = answer.stream.get();
  co_return co_await http::RunWebSocket(stream, http::WebSocketRole::kClient, {}, Say);
}

int Main(const std::vector<std::string>& words) {
  asio::io_context io(1);
  int status = 2;
  if (words.size() == 1 && words[0] == "serve") {
    asio::co_spawn(io, Serve(), [&status](std::exception_ptr e) { status = e ? 1 : 0; });
  } else if (words.size() == 2 && words[0] == "talk") {
    asio::co_spawn(io, Talk(words[1]), [&status](std::exception_ptr e, const Result<>& talked) {
      status = !e && talked ? 0 : 1;
      std::puts(status == 0 ? "ok" : e ? "exception" : talked.error().message.c_str());
    });
  }
  io.run();
  return status;
}

}  // namespace
}  // namespace sandbar

int main(int argc, char** argv) {
  return sandbar::Main(std::vector<std::string>(argv + 1, argv + argc));
}
