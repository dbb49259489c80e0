// The Model Context Protocol's envelope: JSON-RPC messages of both eras, versions, errors. Pure functions, any thread.
//
// Up to 2025-11-25 a client begins with `initialize` and names its version in a header afterwards. From 2026-07-28 on
// there is no handshake: every request carries its version in `_meta` and `server/discover` says what a server can.
// This server keeps no session in either era, so the era is a property of each message.
//
//   Message message = ReadMessage(value, header_version);
//   if (message.error) answer(ErrorMessage(message.id, *message.error));
#pragma once

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sandbar::mcp {

namespace json = boost::json;

inline constexpr std::string_view kModern = "2026-07-28";
inline constexpr std::string_view kNewestLegacy = "2025-11-25";

bool IsKnownVersion(std::string_view version);
// Versions before 2025-06-18 have batches; a request that names none may be of one of those.
bool AllowsBatch(std::string_view version);
std::vector<std::string_view> KnownVersions();

enum ErrorCode : int {
  kParseError = -32700,
  kInvalidRequest = -32600,
  kMethodNotFound = -32601,
  kInvalidParams = -32602,
  kInternalError = -32603,
  kHeaderMismatch = -32020,
  kUnsupportedVersion = -32022,
};

struct RpcError {
  int code = kInternalError;
  std::string message;
  std::optional<json::value> data;
};

enum class Kind { kRequest, kNotification, kResponse };

struct Message {
  Kind kind = Kind::kRequest;
  json::value id;  // null: none, or not usable
  std::string method;
  json::object params;
  json::value progress_token;  // null: the client wants no progress
  bool modern = false;
  std::optional<RpcError> error;  // the message is not valid; the other fields may be empty
};

// What an HTTP request says about its message beside it; empty: nothing.
struct Headers {
  std::string version, method, name;
};

// Checks shape, era and headers of one message.
Message ReadMessage(const json::value& value, const Headers& headers);

RpcError UnsupportedVersion(std::string_view requested);
json::object ErrorMessage(const json::value& id, const RpcError& error);
json::object ResultMessage(const json::value& id, json::object result);
json::object ProgressMessage(const json::value& token, double progress, std::string_view text);

// What every result of the newer era carries. `ttl_ms`: for how long it may be kept, where the method says so.
void StampModern(json::object& result, const json::object& server_info, std::optional<int64_t> ttl_ms);
// The version that `initialize` answers: the client's own when we speak it, else our newest of that era.
std::string NegotiatedVersion(const json::object& params);

}  // namespace sandbar::mcp
