// WebSocket frames (RFC 6455): bytes <-> messages, no I/O, no clock, both roles, any thread; fuzzed. No extensions.
// The opening handshake is wire/websocket_handshake.h, a connection http/websocket.h.
//
//   WebSocketDecoder decoder(WebSocketRole::kServer, 1 << 20);
//   std::optional<WebSocketMessage> message;
//   auto used = decoder.Feed(bytes, &message);          // drop `used` bytes; message is set when one is complete
//   if (!used) send a close frame with decoder.close_code()
//
//   AppendFrame(out, WebSocketKind::kText, "hi", std::nullopt);       // a server's frame
//
// Memory is bounded by the largest message, and is taken for bytes that arrived, not for bytes that a head promises.
// Work is linear in the bytes, however small the frames are. Not Boost.Beast's websocket::stream: it is bound to Asio
// streams, which our ByteStream is not, costs seconds of compile time per file, and its decoder is not public.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "wire/utf8_check.h"

namespace sandbar::wire {

// Of this side. Clients mask what they send, servers do not, and each refuses a peer that does otherwise.
enum class WebSocketRole { kServer, kClient };

enum class WebSocketKind : uint8_t { kText = 1, kBinary = 2, kClose = 8, kPing = 9, kPong = 10 };

// Why a connection closes.
inline constexpr uint16_t kCloseNormal = 1000;
inline constexpr uint16_t kCloseGoingAway = 1001;
inline constexpr uint16_t kCloseProtocol = 1002;
inline constexpr uint16_t kCloseUnsupported = 1003;
inline constexpr uint16_t kCloseNoCode = 1005;  // never sent: stands for a close frame without a code
inline constexpr uint16_t kCloseBadText = 1007;
inline constexpr uint16_t kClosePolicy = 1008;
inline constexpr uint16_t kCloseTooBig = 1009;
inline constexpr uint16_t kCloseInternal = 1011;

struct WebSocketMessage {
  WebSocketKind kind = WebSocketKind::kBinary;
  std::string data;   // of a close: the reason
  uint16_t code = 0;  // of a close only
};

class WebSocketDecoder {
 public:
  WebSocketDecoder(WebSocketRole role, size_t max_message) : role_(role), max_message_(max_message) {}

  // Uses a prefix of `in` and says how long it was. Stops behind the frame that completes a message; control frames
  // are messages too and may come between the fragments of another. Bytes behind a close frame are dropped.
  // Errors: kProtocol, kTooLarge. A decoder that failed stays failed.
  Result<size_t> Feed(std::string_view in, std::optional<WebSocketMessage>* message);

  // After an error: what the close frame says. 1002, 1007 or 1009.
  uint16_t close_code() const { return close_code_; }
  // Pings, pongs and frames with an empty payload so far: work for us that brings nothing.
  uint64_t idle_frames() const { return idle_frames_; }

 private:
  static constexpr size_t kMaxHead = 14;

  std::unexpected<Error> Bad(uint16_t code, std::string_view why);
  size_t TakeHead(std::string_view in);
  Result<> CheckStart();
  Result<> ReadLength();
  Result<> TakePayload(std::string_view piece);
  Result<std::optional<WebSocketMessage>> EndFrame();
  Result<WebSocketMessage> EndControl();
  bool control() const { return (opcode_ & 8) != 0; }

  WebSocketRole role_;
  size_t max_message_;
  uint16_t close_code_ = 0;
  bool closed_ = false;  // a close frame was read
  uint64_t idle_frames_ = 0;

  // The frame under way.
  std::array<uint8_t, kMaxHead> head_ = {};
  size_t head_size_ = 0;
  size_t head_needed_ = 2;
  uint8_t opcode_ = 0;
  bool last_ = false;  // FIN
  bool in_payload_ = false;
  uint64_t left_ = 0;  // bytes of the payload to come
  size_t mask_at_ = 0;
  std::string control_data_;

  // The message whose fragments are being read.
  std::optional<WebSocketKind> kind_;
  std::string data_;
  Utf8Check text_;
};

using WebSocketMask = std::array<uint8_t, 4>;

// Appends one whole frame. A client gives a fresh random mask for each, a server none. `payload` of a control frame has
// at most 125 bytes.
void AppendFrame(std::string& out, WebSocketKind kind, std::string_view payload, std::optional<WebSocketMask> mask);
// The payload of a close frame: the code and as much of the UTF-8 text as fits. Empty for kCloseNoCode.
std::string ClosePayload(uint16_t code, std::string_view reason);

}  // namespace sandbar::wire
