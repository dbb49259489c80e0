// The Messages API: request bodies and the streamed reply.
#include <boost/json/serialize.hpp>

#include "client/api_client.h"
#include "llm/http_model.h"
#include "wire/json_parse.h"

namespace sandbar::llm {
namespace {

using client::Number;
using client::Object;
using client::Text;

constexpr int64_t kMaxBlocks = 256;

json::value ResultContent(const ToolResult& result) {
  json::array content;
  for (const Part& part : result.parts) {
    if (part.mime.empty()) {
      // The API refuses empty text blocks.
      if (!part.text.empty()) content.push_back(json::object{{"type", "text"}, {"text", part.text}});
      continue;
    }
    json::object source{{"type", "base64"}, {"media_type", part.mime}, {"data", part.data}};
    content.push_back(json::object{{"type", "image"}, {"source", std::move(source)}});
  }
  if (content.empty()) return "(no output)";
  return content;
}

json::array ReplyContent(const Reply& reply) {
  if (!reply.blocks.empty()) return reply.blocks;
  json::array content;
  if (!reply.text.empty()) content.push_back(json::object{{"type", "text"}, {"text", reply.text}});
  for (const ToolCall& call : reply.calls)
    content.push_back(json::object{{"type", "tool_use"}, {"id", call.id}, {"name", call.name}, {"input", call.input}});
  return content;
}

json::array Messages(const Conversation& conversation) {
  json::array messages;
  messages.push_back(json::object{{"role", "user"}, {"content", conversation.prompt}});
  for (const Turn& turn : conversation.turns) {
    messages.push_back(json::object{{"role", "assistant"}, {"content", ReplyContent(turn.reply)}});
    if (turn.results.empty()) continue;
    json::array results;
    for (const ToolResult& result : turn.results) {
      json::object block{{"type", "tool_result"}, {"tool_use_id", result.id}, {"content", ResultContent(result)}};
      if (result.is_error) block["is_error"] = true;
      results.push_back(std::move(block));
    }
    messages.push_back(json::object{{"role", "user"}, {"content", std::move(results)}});
  }
  return messages;
}

Stop StopOf(const std::string& reason) {
  if (reason == "tool_use") return Stop::kTools;
  if (reason == "max_tokens" || reason == "model_context_window_exceeded") return Stop::kLength;
  if (reason == "refusal") return Stop::kRefused;
  if (reason == "pause_turn") return Stop::kPaused;
  return Stop::kEnd;
}

int64_t InputTokens(const json::object& usage) {
  return Number(usage, "input_tokens") + Number(usage, "cache_creation_input_tokens") +
         Number(usage, "cache_read_input_tokens");
}

Result<Reply> FromBlocks(json::array blocks, const std::string& stop, Usage usage) {
  Reply reply;
  reply.stop = StopOf(stop);
  reply.usage = usage;
  for (const auto& item : blocks) {
    if (!item.is_object()) return Fail(Code::kProtocol, "the model's reply has a block that is no object");
    const json::object& block = item.as_object();
    const std::string type = Text(block, "type");
    if (type == "text") {
      if (!reply.text.empty()) reply.text += '\n';
      reply.text += Text(block, "text");
    } else if (type == "tool_use") {
      ToolCall call{Text(block, "id"), Text(block, "name"), Object(block, "input")};
      if (call.id.empty() || call.name.empty()) return Fail(Code::kProtocol, "a tool call without id or name");
      reply.calls.push_back(std::move(call));
    }
  }
  reply.blocks = std::move(blocks);
  return reply;
}

void Append(json::object* block, const char* key, const json::object& delta, const char* from) {
  json::value& text = (*block)[key];
  if (!text.is_string()) text = "";
  text.as_string() += Text(delta, from);
}

class MessagesReader final : public ReplyReader {
 public:
  Result<> Event(const wire::SseEvent& event) override {
    wire::JsonLimits limits;
    limits.bytes = 16 << 20;
    auto value = wire::ParseJson(event.data, limits);
    if (!value || !value->is_object()) return Fail(Code::kProtocol, "an event of the model's stream is no JSON object");
    const json::object& data = value->as_object();
    const std::string type = Text(data, "type");
    if (type == "message_start") usage_.input = InputTokens(Object(Object(data, "message"), "usage"));
    if (type == "content_block_start") return Start(data);
    if (type == "content_block_delta") return Delta(data);
    if (type == "content_block_stop") return End(data);
    if (type == "message_delta") {
      const std::string reason = Text(Object(data, "delta"), "stop_reason");
      if (!reason.empty()) stop_ = reason;
      const json::object& usage = Object(data, "usage");
      if (usage.contains("output_tokens")) usage_.output = Number(usage, "output_tokens");
      if (usage.contains("input_tokens")) usage_.input = std::max(usage_.input, InputTokens(usage));
    }
    if (type == "message_stop") done_ = true;
    if (type == "error") return Refusal(Object(data, "error"));
    return {};
  }

  Result<Reply> Take() override {
    if (!done_ || open_ != 0) return Fail(Code::kClosed, "the model's stream was cut before its end");
    return FromBlocks(std::move(blocks_), stop_, usage_);
  }

 private:
  static Result<> Refusal(const json::object& error) {
    const std::string type = Text(error, "type");
    const bool passing = type == "overloaded_error" || type == "api_error" || type == "rate_limit_error";
    return Fail(passing ? Code::kUnavailable : Code::kInternal,
                "the model's stream broke off: " + Text(error, "message"));
  }
  Result<json::object*> At(const json::object& data) {
    const int64_t index = data.contains("index") ? Number(data, "index") : -1;
    if (index < 0 || index >= static_cast<int64_t>(blocks_.size()))
      return Fail(Code::kProtocol, "the model's stream names a block that it did not start");
    return &blocks_[static_cast<size_t>(index)].as_object();
  }
  Result<> Start(const json::object& data) {
    const int64_t index = Number(data, "index");
    if (index != static_cast<int64_t>(blocks_.size()) || index >= kMaxBlocks)
      return Fail(Code::kProtocol, "the model's stream starts its blocks out of order");
    blocks_.push_back(Object(data, "content_block"));
    inputs_.emplace_back();
    ++open_;
    return {};
  }
  Result<> Delta(const json::object& data) {
    SB_TRY(json::object * block, At(data));
    const json::object& delta = Object(data, "delta");
    const std::string type = Text(delta, "type");
    if (type == "text_delta") Append(block, "text", delta, "text");
    if (type == "thinking_delta") Append(block, "thinking", delta, "thinking");
    if (type == "signature_delta") Append(block, "signature", delta, "signature");
    if (type == "input_json_delta") inputs_[static_cast<size_t>(Number(data, "index"))] += Text(delta, "partial_json");
    return {};
  }
  Result<> End(const json::object& data) {
    SB_TRY(json::object * block, At(data));
    --open_;
    if (Text(*block, "type") != "tool_use") return {};
    const std::string& text = inputs_[static_cast<size_t>(Number(data, "index"))];
    if (text.empty()) return {};
    wire::JsonLimits limits;
    limits.bytes = 16 << 20;
    auto input = wire::ParseJson(text, limits);
    if (!input || !input->is_object()) return Fail(Code::kProtocol, "the input of a tool call is no JSON object");
    (*block)["input"] = std::move(*input);
    return {};
  }

  json::array blocks_;
  std::vector<std::string> inputs_;  // of tool calls, as JSON text, by block
  std::string stop_;
  Usage usage_;
  int open_ = 0;
  bool done_ = false;
};

class Anthropic final : public Dialect {
 public:
  explicit Anthropic(std::string model) : model_(std::move(model)) {}

  std::string Body(const Conversation& conversation) const override {
    json::array tools;
    for (const ToolSpec& tool : conversation.tools)
      tools.push_back(
          json::object{{"name", tool.name}, {"description", tool.description}, {"input_schema", tool.schema}});
    json::object body{{"model", model_},
                      {"max_tokens", conversation.max_reply_tokens},
                      {"system", conversation.system},
                      {"messages", Messages(conversation)},
                      {"stream", true}};
    if (!tools.empty()) body["tools"] = std::move(tools);
    return json::serialize(body);
  }
  std::unique_ptr<ReplyReader> Reader() const override { return std::make_unique<MessagesReader>(); }
  Result<Reply> Whole(const json::object& answer) const override {
    const json::value* content = answer.if_contains("content");
    if (content == nullptr || !content->is_array()) return Fail(Code::kProtocol, "the model's answer has no content");
    const json::object& usage = Object(answer, "usage");
    return FromBlocks(content->as_array(), Text(answer, "stop_reason"),
                      {InputTokens(usage), Number(usage, "output_tokens")});
  }

 private:
  std::string model_;
};

}  // namespace

std::unique_ptr<Dialect> MakeAnthropicDialect(std::string model) {
  return std::make_unique<Anthropic>(std::move(model));
}

}  // namespace sandbar::llm
