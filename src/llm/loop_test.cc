// The loop with a scripted model and tools that are values: how it ends, and what it never claims.
#include "llm/loop.h"

#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>

#include "llm/yaml.h"

namespace sandbar::llm {
namespace {

class FakeTools final : public ToolBox {
 public:
  Task<std::vector<ToolSpec>> List() override {
    if (gone) co_return Fail(Code::kNotFound, "no such sandbox");
    std::vector<ToolSpec> tools{{"run_command", "", json::object()}};
    co_return tools;
  }
  Task<ToolResult> Call(ToolCall call) override {
    ++calls;
    if (sleeps) SB_CO_TRYV(co_await Sleep(std::chrono::hours(1)));
    if (gone_at == calls) co_return Fail(Code::kNotFound, "no such sandbox");
    ToolResult result;
    result.id = call.id;
    result.parts.push_back({"exit code 3 · 1 ms\nvalue 17", "", ""});
    result.exit_code = 3;
    co_return result;
  }
  bool gone = false, sleeps = false;
  int calls = 0, gone_at = 0;
};

struct Ended {
  Outcome outcome;
  std::vector<json::object> events;
};

Ended RunLoop(const std::string& script, Limits limits, FakeTools* tools) {
  Ended ended;
  asio::io_context io(1);
  auto steps = ParseYaml(script);
  auto model = MakeScriptedModel(steps->as_array(), 1);
  EXPECT_TRUE(model.has_value()) << model.error().message;
  ToolLoop loop(model->get(), tools, limits, [&](json::object event) { ended.events.push_back(std::move(event)); });
  asio::co_spawn(io, loop.Go("system", "prompt"), [](std::exception_ptr e, const Result<>& r) {
    EXPECT_FALSE(e);
    EXPECT_TRUE(r.has_value());
  });
  io.run();
  ended.outcome = loop.outcome();
  return ended;
}

TEST(Loop, AnswersWithWhatTheToolReturned) {
  FakeTools tools;
  auto ended = RunLoop(
      "[{tool: run_command, usage: {input: 5, output: 2}}, {if: 'value (\\d+)', text: 'it is {{1}}', usage: "
      "{input: 9, output: 1}}]",
      {}, &tools);
  EXPECT_EQ(ended.outcome.status, Status::kAnswered);
  EXPECT_EQ(ended.outcome.answer, "it is 17");
  EXPECT_EQ(ended.outcome.steps, 2);
  EXPECT_EQ(ended.outcome.usage.input, 14);
  EXPECT_EQ(ended.outcome.usage.output, 3);
  ASSERT_EQ(ended.outcome.calls.size(), 1U);
  EXPECT_EQ(ended.outcome.calls[0].exit_code, 3);
  EXPECT_EQ(ExitCode(ended.outcome.status), 0);
  std::string types;
  for (const json::object& event : ended.events) types += std::string(event.at("type").as_string()) + " ";
  EXPECT_EQ(types, "reply call tool reply ");
}

TEST(Loop, AStepLimitIsNoAnswer) {
  FakeTools tools;
  Limits limits;
  limits.max_steps = 3;
  auto ended = RunLoop("[{text: all done, tool: run_command, repeat: 100}]", limits, &tools);
  EXPECT_EQ(ended.outcome.status, Status::kLimit);
  EXPECT_EQ(ExitCode(ended.outcome.status), 3);
  EXPECT_EQ(ended.outcome.answer, "");
  EXPECT_NE(ended.outcome.reason.find("step limit"), std::string::npos);
  EXPECT_EQ(tools.calls, 2);  // nobody would see what the third returns
}

TEST(Loop, ATokenLimitIsNoAnswerButAnAnswerAtTheLimitIsOne) {
  FakeTools tools;
  Limits limits;
  limits.max_tokens = 10;
  auto more = RunLoop("[{tool: run_command, usage: {input: 8, output: 2}}, {text: end}]", limits, &tools);
  EXPECT_EQ(more.outcome.status, Status::kLimit);
  EXPECT_NE(more.outcome.reason.find("token limit"), std::string::npos);
  auto done = RunLoop("[{text: end, usage: {input: 80, output: 2}}]", limits, &tools);
  EXPECT_EQ(done.outcome.status, Status::kAnswered);
}

TEST(Loop, ATimeLimitEndsAToolThatDoesNot) {
  FakeTools tools;
  tools.sleeps = true;
  Limits limits;
  limits.timeout_ms = 50;
  auto ended = RunLoop("[{tool: run_command}, {text: end}]", limits, &tools);
  EXPECT_EQ(ended.outcome.status, Status::kLimit);
  EXPECT_NE(ended.outcome.reason.find("time limit"), std::string::npos);
}

TEST(Loop, AMissingSandboxIsAFailureNotASetting) {
  FakeTools tools;
  tools.gone_at = 1;
  auto during = RunLoop("[{tool: run_command}, {text: end}]", {}, &tools);
  EXPECT_EQ(during.outcome.status, Status::kFailed);
  EXPECT_NE(during.outcome.reason.find("run_command"), std::string::npos);
  FakeTools none;
  none.gone = true;
  EXPECT_EQ(RunLoop("[{text: end}]", {}, &none).outcome.status, Status::kFailed);
}

TEST(Loop, AnEmptyReplyAndAScriptWithoutAStepAreFailures) {
  FakeTools tools;
  EXPECT_EQ(RunLoop("[{text: ''}]", {}, &tools).outcome.status, Status::kFailed);
  auto lost = RunLoop("[{tool: run_command}, {if: never, text: x}]", {}, &tools);
  EXPECT_EQ(lost.outcome.status, Status::kFailed);
  EXPECT_NE(lost.outcome.reason.find("value 17"), std::string::npos);
}

TEST(Loop, AnAnswerCanStillTurnIntoAFailureButNothingElseChanges) {
  FakeTools tools;
  asio::io_context io(1);
  auto steps = ParseYaml("[{text: end}]");
  auto model = MakeScriptedModel(steps->as_array(), 1);
  ToolLoop loop(model->get(), &tools, {}, [](const json::object&) {});
  asio::co_spawn(io, loop.Go("", ""), [](std::exception_ptr, const Result<>&) {});
  io.run();
  loop.End(Status::kFailed, "download");
  EXPECT_EQ(loop.outcome().status, Status::kFailed);
  EXPECT_EQ(loop.outcome().answer, "");
  loop.End(Status::kAnswered, "no");
  EXPECT_EQ(loop.outcome().reason, "download");
}

TEST(Tools, ResultsAreBoundedAndTheExitCodeIsRead) {
  EXPECT_EQ(ExitCodeOf("exit code 0 · 1.2 s\nout"), 0);
  EXPECT_EQ(ExitCodeOf("exit code 137 · 1 s"), 137);
  EXPECT_EQ(ExitCodeOf("wrote 3 bytes"), std::nullopt);
  EXPECT_EQ(ExitCodeOf("exit code x"), std::nullopt);
  EXPECT_EQ(ToolName("execute_command"), "run_command");
  EXPECT_EQ(ToolName("read_file"), "read_file");
  json::array content;
  content.push_back(json::object{{"type", "text"}, {"text", std::string(300'000, 'x')}});
  content.push_back(json::object{{"type", "image"}, {"mimeType", "image/svg+xml"}, {"data", "AA"}});
  content.push_back(json::object{{"type", "image"}, {"mimeType", "image/png"}, {"data", "AA"}});
  auto result = ReadToolResult({{"content", content}, {"isError", true}});
  ASSERT_TRUE(result.has_value());
  EXPECT_TRUE(result->is_error);
  EXPECT_LT(result->parts[0].text.size(), 210'000U);
  EXPECT_EQ(result->parts[1].mime, "");
  EXPECT_EQ(result->parts[2].mime, "image/png");
  EXPECT_FALSE(ReadToolResult(json::object()).has_value());
}

}  // namespace
}  // namespace sandbar::llm
