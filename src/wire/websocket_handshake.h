// The opening handshake of a WebSocket (RFC 6455, section 4) on both sides: which fields a request and its 101 have.
// Version 13 only. Extensions and subprotocols are offered by nobody here; a client's offers (permessage-deflate) are
// declined by not answering them. Pure functions, any thread.
//
//   auto accept = CheckWebSocketRequest(method, fields);              // server
//   if (!accept) answer accept.error().status with its fields, else 101 with WebSocketAnswerFields(*accept)
//
//   request.headers = WebSocketRequestFields(key);                    // client; key: base64 of 16 random bytes
//   SB_TRYV(CheckWebSocketAnswer(head.fields, key));                  // of the 101
#pragma once

#include <expected>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "wire/http1.h"

namespace sandbar::wire {

// An ordinary HTTP answer: 400, or 426 with the fields that say what would be accepted.
struct WebSocketRefusal {
  int status = 400;
  std::string why;
  std::vector<HttpField> fields;
};

// The value of Sec-WebSocket-Accept for a key.
std::string WebSocketAccept(std::string_view key);

// The value of Sec-WebSocket-Accept, or why the request opens no WebSocket.
std::expected<std::string, WebSocketRefusal> CheckWebSocketRequest(std::string_view method,
                                                                   const std::vector<HttpField>& fields);
// Besides Connection, which the HTTP server writes.
std::vector<HttpField> WebSocketAnswerFields(const std::string& accept);

// Besides Connection and Upgrade, which http/upgrade.h writes.
std::vector<HttpField> WebSocketRequestFields(const std::string& key);
// kProtocol: the server did not open the WebSocket that was asked for.
Result<> CheckWebSocketAnswer(const std::vector<HttpField>& fields, std::string_view key);

}  // namespace sandbar::wire
