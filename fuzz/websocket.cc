// WebSocket frames from anywhere: the same messages however the bytes are cut, nothing beyond the limit, valid text
// only, and what was decoded means the same after it was encoded and decoded again.
#include "wire/websocket.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "wire/text.h"

using namespace sandbar;
using namespace sandbar::wire;

namespace {

constexpr size_t kLimit = 4096;

struct Outcome {
  std::vector<WebSocketMessage> messages;
  uint16_t failed_with = 0;
  uint64_t idle = 0;
};

Outcome Decode(std::string_view in, size_t step, WebSocketRole role) {
  Outcome out;
  WebSocketDecoder decoder(role, kLimit);
  while (!in.empty()) {
    std::string_view piece = in.substr(0, step);
    in.remove_prefix(piece.size());
    while (!piece.empty()) {
      std::optional<WebSocketMessage> message;
      auto used = decoder.Feed(piece, &message);
      if (!used) {
        out.failed_with = decoder.close_code();
        if (message || out.failed_with == 0) std::abort();
        return out;
      }
      if (*used == 0 || *used > piece.size()) std::abort();
      piece.remove_prefix(*used);
      if (message) out.messages.push_back(*std::move(message));
    }
  }
  out.idle = decoder.idle_frames();
  return out;
}

bool Same(const Outcome& a, const Outcome& b) {
  if (a.failed_with != b.failed_with || a.idle != b.idle || a.messages.size() != b.messages.size()) return false;
  for (size_t i = 0; i < a.messages.size(); ++i) {
    const WebSocketMessage& x = a.messages[i];
    const WebSocketMessage& y = b.messages[i];
    if (x.kind != y.kind || x.data != y.data || x.code != y.code) return false;
  }
  return true;
}

void CheckMessage(const WebSocketMessage& m, WebSocketRole role) {
  const bool data = m.kind == WebSocketKind::kText || m.kind == WebSocketKind::kBinary;
  if (m.data.size() > (data ? kLimit : 125)) std::abort();
  if ((m.kind == WebSocketKind::kText || m.kind == WebSocketKind::kClose) && !IsUtf8(m.data)) std::abort();
  std::string frame;
  const std::optional<WebSocketMask> mask =
      role == WebSocketRole::kServer ? std::optional<WebSocketMask>({1, 2, 254, 0}) : std::nullopt;
  AppendFrame(frame, m.kind, m.kind == WebSocketKind::kClose ? ClosePayload(m.code, m.data) : m.data, mask);
  const Outcome again = Decode(frame, 3, role);
  if (again.failed_with != 0 || again.messages.size() != 1) std::abort();
  if (again.messages[0].data != m.data || again.messages[0].code != m.code) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const WebSocketRole role = (data[0] & 1) != 0 ? WebSocketRole::kClient : WebSocketRole::kServer;
  const size_t step = 1 + (data[0] >> 1) % 16;
  const std::string_view in(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Outcome whole = Decode(in, in.size() + 1, role);
  if (!Same(whole, Decode(in, step, role))) std::abort();
  for (const WebSocketMessage& message : whole.messages) CheckMessage(message, role);
  return 0;
}
