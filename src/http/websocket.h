// A WebSocket over an upgraded HTTP connection, TCP or TLS, for the server and for our own client. Single loop.
//
//   Task<> Echo(WebSocket* ws) {
//     while (true) {
//       SB_CO_TRY(WebSocketMessage message, co_await ws->Read());
//       if (message.kind == WebSocketKind::kClose) co_return Result<>{};
//       SB_CO_TRYV(co_await ws->Write(message.kind, std::move(message.data)));
//     }
//   }
//   Task<> Handler(HttpExchange* x) { co_return co_await ServeWebSocket(x, {}, Echo); }
//
//   SB_CO_TRY(UpgradeAnswer answer, co_await DialWebSocket(std::move(request)));      // client
//   if (!answer.stream) …                                                             // refused: status and body
//   co_return co_await RunWebSocket(answer.stream.get(), WebSocketRole::kClient, {}, Echo);
//
// A session is a coroutine that owns the conversation. It runs beside two tasks of the WebSocket: one writes frames,
// one sends pings. All three have ended when the call returns, also when it is cancelled, so nothing outlives the
// session and there is nothing to forget. When the session returns, the WebSocket is closed in order: with 1000, after
// an error with 1011, and with 1001 when it was cancelled.
//
// Pings of the peer are answered while a Read waits. A flood of them gets one answer for many, and ends with 1008.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "async/task.h"
#include "http/byte_stream.h"
#include "http/server.h"
#include "http/upgrade.h"
#include "wire/websocket.h"

namespace sandbar::http {

using wire::WebSocketKind;
using wire::WebSocketMessage;
using wire::WebSocketRole;

struct WebSocketOptions {
  size_t max_message = 1 << 20;   // of the peer's; a larger one closes with 1009 before it is read
  size_t max_queued = 256 << 10;  // bytes that wait for those under way; beyond that Write waits
  size_t max_idle_frames = 1000;  // pings, pongs and empty frames of the peer in the time between two pings of ours
  std::chrono::milliseconds ping_every{20'000};  // keeps proxies from closing a silent connection
  // The peer is gone when a Read has waited that long behind a ping of ours. A peer that is slow to take our bytes gets
  // no ping and is not gone; HttpExchange::LimitStalls is for that.
  std::chrono::milliseconds dead_after{60'000};
  std::chrono::milliseconds close_timeout{5'000};  // for what is queued, and for the peer's close frame
};

class WebSocket {
 public:
  virtual ~WebSocket() = default;

  // The next text, binary or close message; after a close, that close again. One call at a time. A cancelled call may
  // be repeated, but not raced with || against something that can end at the same moment: the message would be lost.
  // Errors: kClosed (ended without a close frame), kTimeout (see dead_after), kProtocol, kTooLarge, kTooMany (the peer
  // broke the rules and has been told), kCancelled.
  virtual Task<WebSocketMessage> Read() = 0;
  // kText (valid UTF-8) or kBinary. Returns when the message is queued, and waits before that while the peer is too
  // slow. A cancelled call has queued nothing. Messages of several writers may alternate, never mix. kClosed after
  // either side's close.
  virtual Task<> Write(WebSocketKind kind, std::string bytes) = 0;
  // Sends a close frame behind what is queued, then waits until the peer has closed too; its messages until then are
  // dropped unless another coroutine reads. kTimeout when the peer did not close in time. Only the first call's code
  // is sent.
  virtual Task<> Close(uint16_t code, std::string reason) = 0;
};

// The functions behind it outlive the call.
using WebSocketSession = std::function<Task<>(WebSocket*)>;

// Runs a session on a stream that speaks WebSocket already. `stream` outlives the call and may have been closed by it.
// Returns the session's result.
Task<> RunWebSocket(ByteStream* stream, WebSocketRole role, WebSocketOptions options, WebSocketSession session);

// Answers an HTTP request with 101 and runs the session. The caller has checked Host, Origin and token before. A
// request that opens no WebSocket is answered with 426 here, or fails with kBadRequest and is the caller's to answer.
Task<> ServeWebSocket(HttpExchange* x, WebSocketOptions options, WebSocketSession session);

// Asks a server for a WebSocket: `request` is a GET without body to http:, https:, ws: or wss:. The stream is set when
// the server agreed. Errors as DialUpgrade, and kProtocol when the server's 101 is none for this request.
Task<UpgradeAnswer> DialWebSocket(ClientRequest request, HttpClientOptions options = {});

}  // namespace sandbar::http
