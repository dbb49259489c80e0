#include "llm/script.h"

#include <gtest/gtest.h>

#include "llm/yaml.h"

namespace sandbar::llm {
namespace {

std::vector<Step> Steps(const std::string& yaml) {
  auto value = ParseYaml(yaml);
  EXPECT_TRUE(value.has_value());
  auto steps = ParseSteps(value->as_array());
  EXPECT_TRUE(steps.has_value()) << steps.error().message;
  return *steps;
}

TEST(Script, TheNextStepDependsOnWhatCameBack) {
  const std::string yaml = R"(
- tool: run_command
  input: {command: "node a.js"}
- if: TypeError
  text: mending
  tools: [{tool: write_file, input: {path: a.js, content: "x {{1}}"}}, {tool: run_command, input: {command: "node a.js"}}]
- if: 'median: (\d+), p95: (\d+)'
  text: "{ median: {{1}}, p95: {{2}} } of trial {{trial}} {{9}} {{what}}"
- text: gave up
)";
  Script mended(Steps(yaml), 7);
  auto first = mended.Next("");
  ASSERT_EQ(first->calls.size(), 1U);
  EXPECT_EQ(first->calls[0].input.at("command").as_string(), "node a.js");
  EXPECT_EQ(first->stop, Stop::kTools);
  auto second = mended.Next("exit code 1\nTypeError: x");
  ASSERT_EQ(second->calls.size(), 2U);
  EXPECT_NE(second->calls[0].id, second->calls[1].id);
  EXPECT_EQ(second->calls[0].input.at("content").as_string(), "x {{1}}");  // the pattern has no groups
  auto last = mended.Next("exit code 0\nmedian: 42, p95: 118\n");
  EXPECT_EQ(last->text, "{ median: 42, p95: 118 } of trial 7 {{9}} {{what}}");
  EXPECT_EQ(last->stop, Stop::kEnd);

  Script straight(Steps(yaml), 1);
  ASSERT_TRUE(straight.Next("").has_value());
  EXPECT_TRUE(straight.Next("median: 1, p95: 2")->text.starts_with("{ median: 1, p95: 2 }"));

  Script lost(Steps(yaml), 1);
  ASSERT_TRUE(lost.Next("").has_value());
  EXPECT_EQ(lost.Next("nothing useful")->text, "gave up");
  auto none = lost.Next("");
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().code, Code::kUnavailable);
}

TEST(Script, RepeatAndTrials) {
  Script again(Steps("[{tool: t, repeat: 3}, {text: end}]"), 1);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(again.Next("")->calls.size(), 1U);
  EXPECT_EQ(again.Next("")->text, "end");
  const std::string flaky = "[{text: bad, trials: [2]}, {text: good}]";
  EXPECT_EQ(Script(Steps(flaky), 1).Next("")->text, "good");
  EXPECT_EQ(Script(Steps(flaky), 2).Next("")->text, "bad");
}

TEST(Script, ErrorsNameTheStepAndTheKey) {
  for (const auto& [yaml, part] : {std::pair{"[{text: a}, {tol: x}]", "step 2"},
                                   {"[{text: a}, {tol: x}]", "did you mean `tool`"},
                                   {"[{if: '(', text: a}]", "`if`"},
                                   {"[{}]", "needs `text`, `tool` or `tools`"},
                                   {"[]", "no steps"}}) {
    auto value = ParseYaml(yaml);
    auto steps = ParseSteps(value->as_array());
    ASSERT_FALSE(steps.has_value()) << yaml;
    EXPECT_NE(steps.error().message.find(part), std::string::npos) << steps.error().message;
  }
}

TEST(Yaml, ScalarsKeepTheirKind) {
  auto value = ParseYaml("{a: 3.5, b: '3.5', c: 7, d: true, e: ~, f: 1e3, g: nan, h: 'true', i: 007x}");
  ASSERT_TRUE(value.has_value());
  const json::object& o = value->as_object();
  EXPECT_TRUE(o.at("a").is_double());
  EXPECT_TRUE(o.at("b").is_string());
  EXPECT_TRUE(o.at("c").is_int64());
  EXPECT_TRUE(o.at("d").is_bool());
  EXPECT_TRUE(o.at("e").is_null());
  EXPECT_TRUE(o.at("f").is_double());
  EXPECT_TRUE(o.at("g").is_string());
  EXPECT_TRUE(o.at("h").is_string());
  EXPECT_TRUE(o.at("i").is_string());
}

TEST(Yaml, ErrorsAndBombs) {
  auto broken = ParseYaml("a: [1, 2\nb: }");
  ASSERT_FALSE(broken.has_value());
  EXPECT_NE(broken.error().message.find("line"), std::string::npos);
  EXPECT_FALSE(ParseYaml("{a: 1, a: 2}").has_value());
  std::string bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n";
  for (int i = 1; i < 9; ++i) {
    const std::string before = "*a" + std::to_string(i - 1);
    std::string line = "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + before;
    for (int k = 1; k < 10; ++k) line += "," + before;
    bomb += line + "]\n";
  }
  EXPECT_FALSE(ParseYaml(bomb).has_value());
}

TEST(Replay, RepliesComeBackAsTheyWere) {
  auto events =
      ParseYaml(R"([{"type":"start"},{"type":"reply","text":"a","toolCalls":[{"id":"x","name":"t","input":{"k":1}}],
    "stop":"tools","usage":{"input":3,"output":4}},{"type":"tool"},{"type":"reply","text":"cut","toolCalls":[],"stop":"length"}])");
  auto replies = RecordedReplies(events->as_array());
  ASSERT_TRUE(replies.has_value());
  ASSERT_EQ(replies->size(), 2U);
  EXPECT_EQ((*replies)[0].calls[0].id, "x");
  EXPECT_EQ((*replies)[0].usage.total(), 7);
  EXPECT_EQ((*replies)[1].stop, Stop::kLength);
  EXPECT_FALSE(RecordedReplies(json::array()).has_value());
}

}  // namespace
}  // namespace sandbar::llm
