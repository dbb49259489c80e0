#include "wire/websocket_handshake.h"

#include <algorithm>

#include "base/base64.h"
#include "crypto/digest.h"
#include "wire/text.h"

namespace sandbar::wire {

namespace {

constexpr std::string_view kGuid = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
constexpr size_t kKeyBytes = 16;

size_t Count(const std::vector<HttpField>& fields, std::string_view name) {
  return static_cast<size_t>(
      std::ranges::count_if(fields, [name](const HttpField& f) { return EqualsIgnoreCase(f.name, name); }));
}

// A list may be spread over several fields.
bool Lists(const std::vector<HttpField>& fields, std::string_view name, std::string_view token) {
  return std::ranges::any_of(fields, [name, token](const HttpField& f) {
    return EqualsIgnoreCase(f.name, name) && ListHasToken(f.value, token);
  });
}

std::unexpected<WebSocketRefusal> Refuse(int status, std::string why, std::vector<HttpField> fields = {}) {
  return std::unexpected(WebSocketRefusal{status, std::move(why), std::move(fields)});
}

}  // namespace

std::string WebSocketAccept(std::string_view key) {
  return EncodeBase64(crypto::Sha1(std::string(key).append(kGuid)));
}

std::expected<std::string, WebSocketRefusal> CheckWebSocketRequest(std::string_view method,
                                                                   const std::vector<HttpField>& fields) {
  if (!Lists(fields, "upgrade", "websocket") || !Lists(fields, "connection", "upgrade"))
    return Refuse(426, "this path wants a WebSocket: Connection: Upgrade and Upgrade: websocket",
                  {{"upgrade", "websocket"}});
  if (method != "GET") return Refuse(400, "a WebSocket is opened with GET");
  if (Count(fields, "sec-websocket-version") > 1) return Refuse(400, "Sec-WebSocket-Version was sent twice");
  if (FindField(fields, "sec-websocket-version") != "13")
    return Refuse(426, "Sec-WebSocket-Version must be 13", {{"upgrade", "websocket"}, {"sec-websocket-version", "13"}});
  if (Count(fields, "sec-websocket-key") > 1) return Refuse(400, "Sec-WebSocket-Key was sent twice");
  const std::string_view key = FindField(fields, "sec-websocket-key");
  const auto bytes = DecodeBase64(key);
  if (!bytes || bytes->size() != kKeyBytes) return Refuse(400, "Sec-WebSocket-Key must be 16 bytes in base64");
  return WebSocketAccept(key);
}

std::vector<HttpField> WebSocketAnswerFields(const std::string& accept) {
  return {{"upgrade", "websocket"}, {"sec-websocket-accept", accept}};
}

std::vector<HttpField> WebSocketRequestFields(const std::string& key) {
  return {{"sec-websocket-key", key}, {"sec-websocket-version", "13"}};
}

Result<> CheckWebSocketAnswer(const std::vector<HttpField>& fields, std::string_view key) {
  if (!EqualsIgnoreCase(FindField(fields, "upgrade"), "websocket") || !Lists(fields, "connection", "upgrade"))
    return Fail(Code::kProtocol, "the server switched to something that is no WebSocket");
  if (Count(fields, "sec-websocket-accept") != 1 || FindField(fields, "sec-websocket-accept") != WebSocketAccept(key))
    return Fail(Code::kProtocol, "the server's Sec-WebSocket-Accept does not fit the key");
  for (std::string_view name : {"sec-websocket-extensions", "sec-websocket-protocol"})
    if (!FindField(fields, name).empty())
      return Fail(Code::kProtocol, "the server chose in " + std::string(name) + " what was not offered");
  return {};
}

}  // namespace sandbar::wire
