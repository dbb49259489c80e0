#include "llm/tools.h"

#include <charconv>

#include "client/api_client.h"
#include "wire/json_parse.h"
#include "wire/ndjson.h"
#include "wire/sse.h"
#include "wire/url.h"

namespace sandbar::llm {
namespace {

using client::Number;
using client::Object;
using client::Text;

constexpr size_t kMaxAnswer = 32 << 20;
constexpr size_t kMaxText = 200'000;   // the server's own cap is far below
constexpr size_t kMaxImage = 8 << 20;  // base64
constexpr size_t kMaxParts = 64;
// The server gives a handle back after 40 s; what is silent for much longer is gone.
constexpr auto kSilence = std::chrono::minutes(3);

bool IsImage(const std::string& mime) {
  return mime == "image/png" || mime == "image/jpeg" || mime == "image/gif" || mime == "image/webp";
}

Part ReadPart(const json::object& item) {
  const std::string type = Text(item, "type");
  if (type == "image" && IsImage(Text(item, "mimeType")) && Text(item, "data").size() <= kMaxImage)
    return {"", Text(item, "mimeType"), Text(item, "data")};
  if (type == "text") {
    std::string text = Text(item, "text");
    if (text.size() > kMaxText) text = text.substr(0, kMaxText) + "\n[cut here]";
    return {std::move(text), "", ""};
  }
  if (type == "resource_link") return {"[file " + Text(item, "name") + " " + Text(item, "uri") + "]", "", ""};
  return {"[" + type + " content]", "", ""};
}

ToolResult Refusal(const std::string& message) {
  ToolResult result;
  result.is_error = true;
  result.parts.push_back({message.substr(0, kMaxText), "", ""});
  return result;
}

class McpTools final : public ToolBox {
 public:
  McpTools(client::ApiClient* api, std::string sandbox)
      : api_(api), path_("/mcp/s/" + wire::EncodeComponent(sandbox)) {}

  Task<std::vector<ToolSpec>> List() override {
    SB_CO_TRY(json::object answer, co_await Ask("tools/list", json::object()));
    if (answer.contains("error"))
      co_return Fail(Code::kProtocol, "tools/list: " + Text(Object(answer, "error"), "message"));
    const json::object& result = Object(answer, "result");
    const json::value* list = result.if_contains("tools");
    if (list == nullptr || !list->is_array()) co_return Fail(Code::kProtocol, "tools/list has no tools");
    std::vector<ToolSpec> tools;
    for (const auto& item : list->as_array()) {
      if (!item.is_object()) continue;
      const json::object& tool = item.as_object();
      tools.push_back({Text(tool, "name"), Text(tool, "description"), Object(tool, "inputSchema")});
    }
    co_return tools;
  }

  Task<ToolResult> Call(ToolCall call) override {
    json::object params{{"name", ToolName(call.name)}, {"arguments", std::move(call.input)}};
    auto answer = co_await Ask("tools/call", std::move(params));
    ToolResult result;
    if (!answer) {
      // A file that is too large for one call can be written in parts; the rest is beyond a model.
      const bool mendable = answer.error().code == Code::kTooLarge || answer.error().code == Code::kBadRequest;
      if (!mendable) co_return std::unexpected(std::move(answer).error());
      result = Refusal(answer.error().message);
    } else if (answer->contains("error")) {
      result = Refusal(Text(Object(*answer, "error"), "message"));
    } else {
      SB_CO_TRY(result, ReadToolResult(Object(*answer, "result")));
    }
    result.id = std::move(call.id);
    co_return result;
  }

 private:
  // One JSON-RPC call; the answer comes as JSON or as the last of some events.
  Task<json::object> Ask(std::string method, json::object params) {
    const int64_t id = ++last_id_;
    json::object body{{"jsonrpc", "2.0"}, {"id", id}, {"method", method}, {"params", std::move(params)}};
    http::ClientRequest request = api_->Request("POST", path_, wire::ToAsciiJson(body));
    request.headers.push_back({"accept", "application/json, text/event-stream"});
    request.headers.push_back({"mcp-protocol-version", "2025-11-25"});
    Task<std::unique_ptr<http::ClientResponse>> opening = api_->Open(std::move(request));
    SB_CO_TRY(auto response, co_await WithTimeout(std::move(opening), kSilence));
    if (response->head().Get("content-type").starts_with("text/event-stream"))
      co_return co_await ReadEvents(response.get(), id);
    Task<std::string> reading = response->ReadAll(kMaxAnswer);
    SB_CO_TRY(std::string text, co_await WithTimeout(std::move(reading), kSilence));
    co_return Parse(text);
  }

  static Result<json::object> Parse(const std::string& text) {
    wire::JsonLimits limits;
    limits.bytes = kMaxAnswer;
    SB_TRY(json::value value, wire::ParseJson(text, limits));
    if (!value.is_object()) return Fail(Code::kProtocol, "the server's answer is no JSON object");
    return std::move(value.as_object());
  }

  static Task<json::object> ReadEvents(http::ClientResponse* response, int64_t id) {
    wire::SseParser sse(kMaxAnswer);
    while (true) {
      Task<std::string> reading = response->Read();
      SB_CO_TRY(std::string piece, co_await WithTimeout(std::move(reading), kSilence));
      if (piece.empty()) co_return Fail(Code::kClosed, "the server ended a tool call without an answer");
      SB_CO_TRY(auto events, sse.Feed(piece));
      for (const wire::SseEvent& event : events) {
        SB_CO_TRY(json::object message, Parse(event.data));
        // Progress and other notifications have no id.
        if (message.contains("id") && Number(message, "id") == id) co_return message;
      }
    }
  }

  client::ApiClient* api_;
  std::string path_;
  int64_t last_id_ = 0;
};

}  // namespace

std::string ToolName(const std::string& name) {
  return name == "execute_command" ? "run_command" : name;
}

std::optional<int> ExitCodeOf(std::string_view text) {
  constexpr std::string_view kStart = "exit code ";
  if (!text.starts_with(kStart)) return std::nullopt;
  text.remove_prefix(kStart.size());
  int code = 0;
  auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), code);
  if (ec != std::errc()) return std::nullopt;
  return code;
}

Result<ToolResult> ReadToolResult(const json::object& result) {
  const json::value* content = result.if_contains("content");
  if (content == nullptr || !content->is_array()) return Fail(Code::kProtocol, "a tool's result has no content");
  ToolResult out;
  const json::value* failed = result.if_contains("isError");
  out.is_error = failed != nullptr && failed->is_bool() && failed->as_bool();
  for (const auto& item : content->as_array()) {
    if (out.parts.size() == kMaxParts) break;
    if (item.is_object()) out.parts.push_back(ReadPart(item.as_object()));
  }
  if (!out.parts.empty()) out.exit_code = ExitCodeOf(out.parts.front().text);
  return out;
}

std::unique_ptr<ToolBox> MakeMcpTools(client::ApiClient* api, std::string sandbox) {
  return std::make_unique<McpTools>(api, std::move(sandbox));
}

}  // namespace sandbar::llm
