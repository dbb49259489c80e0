// The providers' streams: whole, cut at every event, wrong.
#include <gtest/gtest.h>

#include "llm/http_model.h"
#include "wire/json_parse.h"

namespace sandbar::llm {
namespace {

using Lines = std::vector<std::string>;

const Lines kMessages = {
    R"({"type":"message_start","message":{"usage":{"input_tokens":10,"cache_read_input_tokens":5,"output_tokens":1}}})",
    R"({"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":""}})",
    R"({"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}})",
    R"({"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"sig"}})",
    R"({"type":"content_block_stop","index":0})",
    R"({"type":"ping"})",
    R"({"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}})",
    R"({"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"Let me "}})",
    R"({"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"look."}})",
    R"({"type":"content_block_stop","index":1})",
    R"({"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"toolu_1","name":"run_command","input":{}}})",
    R"({"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"comm"}})",
    R"({"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"and\":\"ls\"}"}})",
    R"({"type":"content_block_stop","index":2})",
    R"({"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":33}})",
    R"({"type":"message_stop"})"};

const Lines kChunks = {
    R"({"choices":[{"index":0,"delta":{"role":"assistant","content":"Let me "}}]})",
    R"({"choices":[{"index":0,"delta":{"content":"look."}}]})",
    R"({"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call_a","type":"function","function":{"name":"run_command","arguments":"{\"comm"}}]}}]})",
    R"({"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"and\":\"ls\"}"}}]}}]})",
    R"({"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]})",
    R"({"choices":[],"usage":{"prompt_tokens":15,"completion_tokens":33}})",
    "[DONE]"};

Result<Reply> Read(const Dialect& dialect, const Lines& lines, size_t count) {
  auto reader = dialect.Reader();
  for (size_t i = 0; i < count; ++i) SB_TRYV(reader->Event({"message", lines[i]}));
  return reader->Take();
}

void ExpectLook(const Result<Reply>& reply) {
  ASSERT_TRUE(reply.has_value()) << reply.error().message;
  EXPECT_EQ(reply->text, "Let me look.");
  EXPECT_EQ(reply->stop, Stop::kTools);
  ASSERT_EQ(reply->calls.size(), 1U);
  EXPECT_EQ(reply->calls[0].name, "run_command");
  EXPECT_EQ(reply->calls[0].input.at("command").as_string(), "ls");
  EXPECT_EQ(reply->usage.input, 15);
  EXPECT_EQ(reply->usage.output, 33);
}

TEST(Anthropic, AStreamIsAReplyAndACutOneIsNot) {
  auto dialect = MakeAnthropicDialect("m");
  ExpectLook(Read(*dialect, kMessages, kMessages.size()));
  for (size_t i = 0; i < kMessages.size(); ++i) {
    auto cut = Read(*dialect, kMessages, i);
    ASSERT_FALSE(cut.has_value()) << i;
    EXPECT_EQ(cut.error().code, Code::kClosed);
  }
}

TEST(OpenAi, AStreamIsAReplyAndACutOneIsNot) {
  auto dialect = MakeOpenAiDialect("m");
  ExpectLook(Read(*dialect, kChunks, kChunks.size()));
  for (size_t i = 0; i + 2 < kChunks.size(); ++i) {
    auto cut = Read(*dialect, kChunks, i);
    ASSERT_FALSE(cut.has_value()) << i;
    EXPECT_EQ(cut.error().code, Code::kClosed);
  }
}

TEST(Anthropic, WrongEventsAreErrors) {
  auto dialect = MakeAnthropicDialect("m");
  for (const auto& [lines, code] :
       {std::pair{Lines{"not json"}, Code::kProtocol},
        {Lines{R"({"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"x"}})"},
         Code::kProtocol},
        {Lines{R"({"type":"content_block_start","index":7,"content_block":{}})"}, Code::kProtocol},
        {Lines{R"({"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}})"}, Code::kUnavailable},
        {Lines{R"({"type":"error","error":{"type":"invalid_request_error","message":"no"}})"}, Code::kInternal},
        {Lines{R"({"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"i","name":"n"}})",
               R"({"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"[1"}})",
               R"({"type":"content_block_stop","index":0})"},
         Code::kProtocol}}) {
    auto got = Read(*dialect, lines, lines.size());
    ASSERT_FALSE(got.has_value()) << lines.back();
    EXPECT_EQ(got.error().code, code) << lines.back();
  }
}

Conversation Talk(Reply reply) {
  Conversation talk;
  talk.system = "be brief";
  talk.prompt = "hi";
  talk.tools.push_back({"run_command", "runs", json::object{{"type", "object"}}});
  Turn turn;
  turn.reply = std::move(reply);
  ToolResult result;
  result.id = turn.reply.calls[0].id;
  result.parts = {{"exit code 1", "", ""}, {"", "image/png", "AAAA"}};
  turn.results.push_back(result);
  talk.turns.push_back(turn);
  return talk;
}

TEST(Anthropic, TheReplyGoesBackUnchangedWithItsResults) {
  auto dialect = MakeAnthropicDialect("m");
  auto reply = Read(*dialect, kMessages, kMessages.size());
  auto body = wire::ParseJson(dialect->Body(Talk(*reply)));
  const json::array& messages = body->at("messages").as_array();
  ASSERT_EQ(messages.size(), 3U);
  const json::array& said = messages[1].at("content").as_array();
  ASSERT_EQ(said.size(), 3U);
  EXPECT_EQ(said[0].at("signature").as_string(), "sig");
  EXPECT_EQ(said[2].at("input").at("command").as_string(), "ls");
  const json::value& result = messages[2].at("content").as_array()[0];
  EXPECT_EQ(result.at("tool_use_id").as_string(), "toolu_1");
  EXPECT_EQ(result.at("content").as_array()[1].at("source").at("media_type").as_string(), "image/png");
}

TEST(OpenAi, TheReplyGoesBackWithItsResults) {
  auto dialect = MakeOpenAiDialect("m");
  auto reply = Read(*dialect, kChunks, kChunks.size());
  auto body = wire::ParseJson(dialect->Body(Talk(*reply)));
  const json::array& messages = body->at("messages").as_array();
  ASSERT_EQ(messages.size(), 4U);
  EXPECT_EQ(messages[2].at("tool_calls").as_array()[0].at("function").at("arguments").as_string(),
            "{\"command\":\"ls\"}");
  EXPECT_EQ(messages[3].at("tool_call_id").as_string(), "call_a");
  EXPECT_EQ(messages[3].at("content").as_string(), "exit code 1\n[image image/png]");
}

TEST(HttpModel, WhatMayPassAndHowLongToWait) {
  for (int status : {408, 429, 500, 502, 503, 529}) EXPECT_TRUE(MayPass(status)) << status;
  for (int status : {400, 401, 403, 404, 413, 422}) EXPECT_FALSE(MayPass(status)) << status;
  auto wait = [](const char* name, const char* value) {
    http::ClientResponseHead head;
    head.headers = {{name, value}};
    return RetryAfter(head);
  };
  EXPECT_EQ(wait("retry-after", "2"), std::chrono::milliseconds(2000));
  EXPECT_EQ(wait("retry-after-ms", "250"), std::chrono::milliseconds(250));
  EXPECT_EQ(wait("retry-after", "Wed, 21 Oct 2026 07:28:00 GMT"), std::nullopt);
  EXPECT_EQ(wait("retry-after", "-1"), std::nullopt);
  EXPECT_EQ(wait("x", "1"), std::nullopt);
}

TEST(HttpModel, TheKeyIsCutOut) {
  EXPECT_EQ(Redact("a sk-secret-123 b sk-secret-123", "sk-secret-123"), "a [key] b [key]");
  EXPECT_EQ(Redact("ordinary", ""), "ordinary");
  EXPECT_EQ(Redact("ollama is a name", "ollama"), "ollama is a name");
}

}  // namespace
}  // namespace sandbar::llm
