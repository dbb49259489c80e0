#include "mcp/server.h"

#include <signal.h>

#include <boost/json.hpp>

#include "mcp/cells.h"
#include "mcp/resources.h"

namespace sandbar::mcp {
namespace {

constexpr std::string_view kInstructions =
    "Runs code in a disposable Linux sandbox. It is made at the first call, keeps its files and processes between "
    "calls, "
    "and is removed when idle. It has no network unless the operator allowed it. Relative paths start in its working "
    "directory.";

constexpr int64_t kFixedMs = 300'000;

json::object Capabilities() {
  return {{"tools", json::object{{"listChanged", false}}}, {"resources", json::object{}}};
}

json::object Initialize(const Connection& connection, const json::object& params) {
  return {{"protocolVersion", NegotiatedVersion(params)},
          {"capabilities", Capabilities()},
          {"serverInfo", connection.server_info},
          {"instructions", kInstructions}};
}

json::object Discover(const Connection& connection) {
  json::array versions;
  for (std::string_view version : KnownVersions()) versions.emplace_back(version);
  return {{"supportedVersions", std::move(versions)},
          {"capabilities", Capabilities()},
          {"serverInfo", connection.server_info},
          {"instructions", kInstructions}};
}

std::optional<RpcError> BadParams(std::string message) {
  return RpcError{kInvalidParams, std::move(message), std::nullopt};
}

struct Prepared {
  const Tool* tool = nullptr;
  ToolCall call;
  std::optional<RpcError> error;
};

// Finds the tool and takes apart what the protocol says about the call; the arguments themselves are the tool's.
Prepared Prepare(const Connection* connection, const json::object& params) {
  Prepared out;
  const json::value* name = params.if_contains("name");
  if (name == nullptr || !name->is_string()) {
    out.error = BadParams("params.name: must be the name of a tool");
    return out;
  }
  out.tool = FindTool(*connection, name->get_string());
  if (out.tool == nullptr) {
    out.error = BadParams("unknown tool: " + std::string(name->get_string()).substr(0, 64));
    return out;
  }
  if (auto allowed = sandbox::CheckRole(connection->scope.caller, out.tool->role.needed); !allowed) {
    out.error = RpcError{kInvalidRequest, allowed.error().message, std::nullopt};
    return out;
  }
  out.call.connection = connection;
  out.call.sandbox = connection->sandbox;
  if (const json::value* arguments = params.if_contains("arguments")) {
    if (!arguments->is_object()) {
      out.error = BadParams("params.arguments: must be an object");
      return out;
    }
    out.call.arguments = arguments->get_object();
  }
  if (const json::value* chosen = out.call.arguments.if_contains("sandbox");
      chosen != nullptr && connection->sandbox_argument) {
    if (!chosen->is_string()) {
      out.error = BadParams("params.arguments.sandbox: must be a string");
      return out;
    }
    out.call.sandbox = std::string(chosen->get_string());
    out.call.arguments.erase("sandbox");
  }
  return out;
}

Task<ToolResult> Guarded(const Tool* tool, ToolCall* call) {
  std::string thrown;
  try {
    co_return co_await tool->function(call);
  } catch (const std::exception& e) {
    thrown = e.what();
  }
  // Asio throws at the next await of a cancelled coroutine; any other exception is a bug of ours.
  auto state = co_await asio::this_coro::cancellation_state;
  if (state.cancelled() == asio::cancellation_type::none) SB_BUG("exception in a tool: " + thrown);
  co_return Fail(Code::kInternal, "exception in a tool: " + thrown);
}

json::object ToJson(ToolResult result) {
  json::object out{{"content", std::move(result.content)}};
  if (result.is_error) out["isError"] = true;
  return out;
}

// Methods whose answer depends on the connection alone; these may be kept for a while.
std::optional<json::object> Fixed(const Connection& connection, const Message& message) {
  if (message.method == "server/discover") return Discover(connection);
  if (message.method == "tools/list") return json::object{{"tools", ListTools(connection)}};
  if (message.method == "resources/list") return ListResources();
  if (message.method == "resources/templates/list") return ListResourceTemplates();
  return std::nullopt;
}

Task<json::object> Read(const Connection* connection, const json::object* params) {
  const json::value* uri = params->if_contains("uri");
  if (uri == nullptr || !uri->is_string()) co_return Fail(Code::kBadRequest, "params.uri: must be a string");
  std::string text(uri->get_string());
  co_return co_await ReadResource(connection, std::move(text));
}

asio::awaitable<json::object> CallTool(Prepared* prepared) {
  auto done = co_await Guarded(prepared->tool, &prepared->call);
  if (done) co_return ToJson(*std::move(done));
  // A model can correct itself only by what it gets to read.
  ToolResult failed = TextResult(prepared->call.connection->public_message(done.error()));
  failed.is_error = true;
  co_return ToJson(std::move(failed));
}

}  // namespace

Result<> CheckAllowed(const Connection& connection, const Message& message) {
  if (message.method != "tools/call") return {};
  const json::value* name = message.params.if_contains("name");
  const Tool* tool = name != nullptr && name->is_string() ? FindTool(connection, name->get_string()) : nullptr;
  return tool == nullptr ? Result<>{} : sandbox::CheckRole(connection.scope.caller, tool->role.needed);
}

asio::awaitable<json::object> Answer(const Connection* connection, Message message, Progress* progress,
                                     Waited* waited) {
  json::object result;
  std::optional<int64_t> ttl_ms;
  const bool modern = message.modern || message.method == "server/discover";
  if (auto fixed = Fixed(*connection, message)) {
    result = *std::move(fixed);
    ttl_ms = kFixedMs;
  } else if (message.method == "initialize" && !message.modern) {
    result = Initialize(*connection, message.params);
  } else if (message.method == "resources/read") {
    auto read = co_await Read(connection, &message.params);
    RpcError error{kInvalidParams, read ? "" : connection->public_message(read.error()), std::nullopt};
    if (!read) co_return ErrorMessage(message.id, error);
    result = *std::move(read);
    ttl_ms = 0;
  } else if (message.method == "tools/call") {
    Prepared prepared = Prepare(connection, message.params);
    if (prepared.error) co_return ErrorMessage(message.id, *prepared.error);
    prepared.call.progress = progress;
    prepared.call.waited = waited;
    result = co_await CallTool(&prepared);
  } else if (message.method != "ping") {
    RpcError error{kMethodNotFound, "unknown method: " + message.method.substr(0, 64), std::nullopt};
    co_return ErrorMessage(message.id, error);
  }
  if (modern) StampModern(result, connection->server_info, ttl_ms);
  co_return ResultMessage(message.id, std::move(result));
}

Task<> Abandon(const Connection* connection, Waited waited) {
  if (!waited.cell.empty()) connection->cells->Drop(waited.cell);
  if (waited.command.empty()) co_return Result<>{};
  auto killed = co_await connection->domain->commands->Kill(connection->scope, std::move(waited.session),
                                                            std::move(waited.command), SIGKILL);
  if (!killed) co_return std::unexpected(std::move(killed).error());
  co_return Result<>{};
}

}  // namespace sandbar::mcp
