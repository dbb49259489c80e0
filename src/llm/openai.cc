// Chat completions, as OpenAI, Ollama, vLLM and gateways speak it: request bodies and the streamed reply.
#include <boost/json/serialize.hpp>

#include "client/api_client.h"
#include "llm/http_model.h"
#include "wire/json_parse.h"

namespace sandbar::llm {
namespace {

using client::Number;
using client::Object;
using client::Text;

constexpr int64_t kMaxCalls = 64;

json::object AssistantMessage(const Reply& reply) {
  json::object message{{"role", "assistant"}, {"content", nullptr}};
  if (!reply.text.empty()) message["content"] = reply.text;
  json::array calls;
  for (const ToolCall& call : reply.calls)
    calls.push_back(
        json::object{{"id", call.id},
                     {"type", "function"},
                     {"function", json::object{{"name", call.name}, {"arguments", json::serialize(call.input)}}}});
  if (!calls.empty()) message["tool_calls"] = std::move(calls);
  return message;
}

json::array Messages(const Conversation& conversation) {
  json::array messages;
  messages.push_back(json::object{{"role", "system"}, {"content", conversation.system}});
  messages.push_back(json::object{{"role", "user"}, {"content", conversation.prompt}});
  for (const Turn& turn : conversation.turns) {
    messages.push_back(AssistantMessage(turn.reply));
    // A tool's message is text only in this dialect: an image is named, not shown.
    for (const ToolResult& result : turn.results)
      messages.push_back(json::object{{"role", "tool"}, {"tool_call_id", result.id}, {"content", result.Text()}});
  }
  return messages;
}

Stop StopOf(const std::string& reason, bool calls) {
  if (reason == "length") return Stop::kLength;
  if (reason == "content_filter") return Stop::kRefused;
  return calls ? Stop::kTools : Stop::kEnd;
}

struct PartialCall {
  std::string id, name, arguments;
};

Result<Reply> MakeReply(std::string text, const std::vector<PartialCall>& calls, const std::string& reason,
                        Usage usage) {
  Reply reply;
  reply.text = std::move(text);
  reply.usage = usage;
  for (const PartialCall& call : calls) {
    if (call.name.empty()) return Fail(Code::kProtocol, "a tool call without a name");
    wire::JsonLimits limits;
    limits.bytes = 16 << 20;
    auto input = wire::ParseJson(call.arguments, limits);
    if (!input || !input->is_object()) return Fail(Code::kProtocol, "the arguments of a tool call are no JSON object");
    // Some local servers leave the id out.
    std::string id = call.id.empty() ? "call_" + std::to_string(reply.calls.size() + 1) : call.id;
    reply.calls.push_back({std::move(id), call.name, std::move(input->as_object())});
  }
  reply.stop = StopOf(reason, !reply.calls.empty());
  return reply;
}

Usage UsageOf(const json::object& answer) {
  const json::object& usage = Object(answer, "usage");
  return {Number(usage, "prompt_tokens"), Number(usage, "completion_tokens")};
}

const json::object& FirstChoice(const json::object& answer) {
  static const json::object kNone;
  const json::value* choices = answer.if_contains("choices");
  if (choices == nullptr || !choices->is_array() || choices->as_array().empty()) return kNone;
  const json::value& first = choices->as_array().front();
  return first.is_object() ? first.as_object() : kNone;
}

class ChunkReader final : public ReplyReader {
 public:
  Result<> Event(const wire::SseEvent& event) override {
    if (event.data == "[DONE]") return {};
    wire::JsonLimits limits;
    limits.bytes = 16 << 20;
    auto value = wire::ParseJson(event.data, limits);
    if (!value || !value->is_object()) return Fail(Code::kProtocol, "a chunk of the model's stream is no JSON object");
    const json::object& chunk = value->as_object();
    if (chunk.contains("error"))
      return Fail(Code::kUnavailable, "the model's stream broke off: " + Text(Object(chunk, "error"), "message"));
    if (chunk.contains("usage") && chunk.at("usage").is_object()) usage_ = UsageOf(chunk);
    const json::object& choice = FirstChoice(chunk);
    const std::string reason = Text(choice, "finish_reason");
    if (!reason.empty()) reason_ = reason;
    const json::object& delta = Object(choice, "delta");
    text_ += Text(delta, "content");
    const json::value* calls = delta.if_contains("tool_calls");
    if (calls == nullptr || !calls->is_array()) return {};
    for (const auto& item : calls->as_array()) SB_TRYV(AddCall(item));
    return {};
  }

  // Servers that forget [DONE] still say why the reply ended.
  Result<Reply> Take() override {
    if (reason_.empty()) return Fail(Code::kClosed, "the model's stream was cut before its end");
    return MakeReply(std::move(text_), calls_, reason_, usage_);
  }

 private:
  Result<> AddCall(const json::value& item) {
    if (!item.is_object()) return Fail(Code::kProtocol, "a tool call that is no object");
    const json::object& piece = item.as_object();
    const int64_t index = Number(piece, "index");
    if (index < 0 || index >= kMaxCalls || index > static_cast<int64_t>(calls_.size()))
      return Fail(Code::kProtocol, "the tool calls of the model's stream are out of order");
    if (index == static_cast<int64_t>(calls_.size())) calls_.emplace_back();
    PartialCall& call = calls_[static_cast<size_t>(index)];
    const json::object& function = Object(piece, "function");
    if (call.id.empty()) call.id = Text(piece, "id");
    call.name += Text(function, "name");
    call.arguments += Text(function, "arguments");
    return {};
  }

  std::string text_, reason_;
  std::vector<PartialCall> calls_;
  Usage usage_;
};

class OpenAi final : public Dialect {
 public:
  explicit OpenAi(std::string model) : model_(std::move(model)) {}

  std::string Body(const Conversation& conversation) const override {
    json::array tools;
    for (const ToolSpec& tool : conversation.tools)
      tools.push_back(json::object{
          {"type", "function"},
          {"function",
           json::object{{"name", tool.name}, {"description", tool.description}, {"parameters", tool.schema}}}});
    json::object body{{"model", model_},
                      {"messages", Messages(conversation)},
                      {"max_completion_tokens", conversation.max_reply_tokens},
                      {"stream", true},
                      {"stream_options", json::object{{"include_usage", true}}}};
    if (!tools.empty()) body["tools"] = std::move(tools);
    return json::serialize(body);
  }
  std::unique_ptr<ReplyReader> Reader() const override { return std::make_unique<ChunkReader>(); }
  Result<Reply> Whole(const json::object& answer) const override {
    const json::object& choice = FirstChoice(answer);
    if (!choice.contains("message")) return Fail(Code::kProtocol, "the model's answer has no choices");
    const json::object& message = Object(choice, "message");
    std::vector<PartialCall> calls;
    const json::value* list = message.if_contains("tool_calls");
    if (list != nullptr && list->is_array())
      for (const auto& item : list->as_array()) {
        if (!item.is_object()) return Fail(Code::kProtocol, "a tool call that is no object");
        const json::object& function = Object(item.as_object(), "function");
        calls.push_back({Text(item.as_object(), "id"), Text(function, "name"), Text(function, "arguments")});
      }
    return MakeReply(Text(message, "content"), calls, Text(choice, "finish_reason"), UsageOf(answer));
  }

 private:
  std::string model_;
};

}  // namespace

std::unique_ptr<Dialect> MakeOpenAiDialect(std::string model) {
  return std::make_unique<OpenAi>(std::move(model));
}

}  // namespace sandbar::llm
