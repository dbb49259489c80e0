#include "mcp/protocol.h"

#include <algorithm>
#include <boost/json/array.hpp>

namespace sandbar::mcp {
namespace {

constexpr std::string_view kVersions[] = {kModern, kNewestLegacy, "2025-06-18", "2025-03-26", "2024-11-05"};
constexpr std::string_view kVersionKey = "io.modelcontextprotocol/protocolVersion";
constexpr std::string_view kServerInfoKey = "io.modelcontextprotocol/serverInfo";

std::optional<std::string> TextOf(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  if (value == nullptr || !value->is_string()) return std::nullopt;
  return std::string(value->as_string());
}

const json::object* ObjectOf(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  return value == nullptr ? nullptr : value->if_object();
}

bool IsId(const json::value& value) {
  return value.is_string() || value.is_int64() || value.is_uint64() || value.is_double();
}

std::optional<RpcError> Bad(std::string message) {
  return RpcError{kInvalidRequest, std::move(message), std::nullopt};
}

// JSON-RPC's own rules.
std::optional<RpcError> ReadShape(const json::object& object, Message& message) {
  const json::value* id = object.if_contains("id");
  if (id != nullptr && IsId(*id)) message.id = *id;
  if (TextOf(object, "jsonrpc") != "2.0") return Bad("jsonrpc: must be \"2.0\"");
  if (!object.contains("method")) {
    if (!object.contains("result") && !object.contains("error")) return Bad("method: is required");
    message.kind = Kind::kResponse;
    return std::nullopt;
  }
  auto method = TextOf(object, "method");
  if (!method) return Bad("method: must be a string");
  message.method = *std::move(method);
  if (id == nullptr) message.kind = Kind::kNotification;
  if (id != nullptr && message.id.is_null()) return Bad("id: must be a string or a number");
  if (const json::value* params = object.if_contains("params")) {
    if (!params->is_object()) return RpcError{kInvalidParams, "params: must be an object", std::nullopt};
    message.params = params->get_object();
  }
  return std::nullopt;
}

std::optional<RpcError> Mismatch(std::string_view header, std::string_view got, std::string_view body) {
  return RpcError{kHeaderMismatch,
                  std::string(header) + " is \"" + std::string(got) + "\", the message says \"" + std::string(body) +
                      "\"; send the same in both",
                  std::nullopt};
}

// Which era the message is of, and whether the headers agree with it.
std::optional<RpcError> ReadEra(const Headers& headers, Message& message) {
  const json::object* meta = ObjectOf(message.params, "_meta");
  if (meta != nullptr) {
    if (const json::value* token = meta->if_contains("progressToken"); token != nullptr && IsId(*token))
      message.progress_token = *token;
  }
  auto version = meta == nullptr ? std::nullopt : TextOf(*meta, kVersionKey);
  if (version && *version != kModern) return UnsupportedVersion(*version);
  message.modern = version.has_value();
  if (message.kind != Kind::kRequest) return std::nullopt;
  if (message.modern && !headers.version.empty() && headers.version != *version)
    return Mismatch("MCP-Protocol-Version", headers.version, *version);
  if (!message.modern && headers.version == kModern)
    return RpcError{kInvalidParams, "params._meta[\"" + std::string(kVersionKey) + "\"]: is required by this version",
                    std::nullopt};
  if (!message.modern) return std::nullopt;
  if (!headers.method.empty() && headers.method != message.method)
    return Mismatch("Mcp-Method", headers.method, message.method);
  auto name = TextOf(message.params, "name");
  if (!headers.name.empty() && name && headers.name != *name) return Mismatch("Mcp-Name", headers.name, *name);
  return std::nullopt;
}

}  // namespace

std::vector<std::string_view> KnownVersions() {
  return {std::begin(kVersions), std::end(kVersions)};
}

bool IsKnownVersion(std::string_view version) {
  return std::ranges::find(kVersions, version) != std::end(kVersions);
}

bool AllowsBatch(std::string_view version) {
  return version.empty() || version == "2025-03-26" || version == "2024-11-05";
}

Message ReadMessage(const json::value& value, const Headers& headers) {
  Message message;
  const json::object* object = value.if_object();
  if (object == nullptr) {
    message.error = Bad("a message is a JSON object");
    return message;
  }
  message.error = ReadShape(*object, message);
  if (!message.error) message.error = ReadEra(headers, message);
  return message;
}

RpcError UnsupportedVersion(std::string_view requested) {
  json::array supported;
  for (std::string_view version : kVersions) supported.emplace_back(version);
  return RpcError{kUnsupportedVersion,
                  "protocol version \"" + std::string(requested.substr(0, 64)) + "\" is not spoken here",
                  json::object{{"supported", std::move(supported)}, {"requested", requested.substr(0, 64)}}};
}

json::object ErrorMessage(const json::value& id, const RpcError& error) {
  json::object body{{"code", error.code}, {"message", error.message}};
  if (error.data) body["data"] = *error.data;
  return {{"jsonrpc", "2.0"}, {"id", id}, {"error", std::move(body)}};
}

json::object ResultMessage(const json::value& id, json::object result) {
  return {{"jsonrpc", "2.0"}, {"id", id}, {"result", std::move(result)}};
}

json::object ProgressMessage(const json::value& token, double progress, std::string_view text) {
  json::object params{{"progressToken", token}, {"progress", progress}, {"message", text}};
  return {{"jsonrpc", "2.0"}, {"method", "notifications/progress"}, {"params", std::move(params)}};
}

void StampModern(json::object& result, const json::object& server_info, std::optional<int64_t> ttl_ms) {
  result["resultType"] = "complete";
  result["_meta"] = json::object{{kServerInfoKey, server_info}};
  if (!ttl_ms) return;
  result["ttlMs"] = *ttl_ms;
  result["cacheScope"] = "private";
}

std::string NegotiatedVersion(const json::object& params) {
  auto wanted = TextOf(params, "protocolVersion");
  if (wanted && *wanted != kModern && IsKnownVersion(*wanted)) return *wanted;
  return std::string(kNewestLegacy);
}

}  // namespace sandbar::mcp
