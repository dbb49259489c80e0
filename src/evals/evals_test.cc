// Cases, checks, statistics and reports without a sandbox.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "evals/judge.h"
#include "evals/node.h"
#include "evals/report.h"
#include "evals/stats.h"
#include "llm/yaml.h"

namespace sandbar::evals {
namespace json = boost::json;
namespace {

namespace fs = std::filesystem;

TEST(Stats, PassAtKAndPassHatK) {
  EXPECT_DOUBLE_EQ(PassAtK(3, 2, 3), 1);
  EXPECT_DOUBLE_EQ(PassHatK(3, 2, 3), 0);
  EXPECT_DOUBLE_EQ(PassAtK(3, 0, 3), 0);
  EXPECT_DOUBLE_EQ(PassHatK(3, 3, 3), 1);
  EXPECT_DOUBLE_EQ(PassAtK(10, 3, 1), 0.3);
  // 1 - C(7,2)/C(10,2) = 1 - 21/45, C(3,2)/C(10,2) = 3/45.
  EXPECT_NEAR(PassAtK(10, 3, 2), 1 - 21.0 / 45, 1e-12);
  EXPECT_NEAR(PassHatK(10, 3, 2), 3.0 / 45, 1e-12);
  EXPECT_DOUBLE_EQ(PassAtK(0, 0, 1), 0);
  EXPECT_DOUBLE_EQ(PassAtK(2, 2, 3), 0);
}

EvalCase Decode(const std::string& yaml) {
  EvalCase c;
  auto value = llm::ParseYaml(yaml);
  EXPECT_TRUE(value.has_value()) << value.error().message;
  DecodeCase(*value, &c);
  return c;
}

TEST(Case, EverythingThatItMayHave) {
  EvalCase c = Decode(R"(
name: n
tags: [a, b]
input: do it
timeout: 90s
maxSteps: 5
trials: 3
passRate: 0.5
setup: {runtime: node24, net: deny, files: {a.txt: hello}, commands: ["true"]}
script: [{text: x}]
checks:
  - includes: [a, b]
  - matches: 'a.b'
  - calledTool: {name: run_command, times: 2, input: node}
  - notCalledTool: expose_port
  - toolOrder: [write_file, run_command]
  - file: {path: out, equals: x}
  - checker: {command: node c.js, files: {c.js: "x"}, score: true}
    threshold: 0.5
  - maxTokens: 10
    soft: true
outputs: [out, "src/**/*.js", /tmp/x]
)");
  EXPECT_EQ(c.broken, "");
  EXPECT_EQ(c.limits.timeout_ms, 90'000);
  EXPECT_EQ(c.limits.max_steps, 5);
  EXPECT_EQ(c.body.checks.size(), 8U);
  EXPECT_EQ(CheckName(c.body.checks[2]), "calledTool run_command");
}

TEST(Case, WhatIsWrongHasAName) {
  for (const auto& [yaml, part] :
       {std::pair{"{input: x}", "could not fail"},
        {"{input: x, checks: [{includes: a, soft: true}]}", "could not fail"},
        {"{checks: [{includes: a}]}", "`input`"},
        {"{input: x, checks: [{includes: a, matches: b}]}", "exactly one"},
        {"{input: x, checks: [{includs: a}]}", "did you mean `includes`"},
        {"{input: x, checks: [{includes: ''}]}", "empty text"},
        {"{input: x, checks: [{matches: '('}]}", "regular expression"},
        {"{input: x, timeout: soon, checks: [{includes: a}]}", "duration"},
        {"{input: x, passRate: 0, checks: [{includes: a}]}", "passRate"},
        {"{input: x, script: [{tol: a}], checks: [{includes: a}]}", "step 1"},
        {"{input: x, model: m, script: [{text: a}], checks: [{includes: a}]}", "exclude each other"},
        {"{input: x, checks: [{checker: {command: 'true'}}]}", "`outputs`: is required"},
        {"{input: x, outputs: [a/../../b], checks: [{includes: a}]}", "'a/../../b' must be the path of a file"},
        {"{input: x, outputs: [''], checks: [{includes: a}]}", "1 to 4096"},
        {"{input: x, outputs: [], checks: [{checker: {command: x, serve: {command: y, port: 0}}}]}", "port"},
        {"[1]", "object"}}) {
    EvalCase c = Decode(yaml);
    EXPECT_NE(c.broken.find(part), std::string::npos) << yaml << " -> " << c.broken;
  }
}

TEST(Outputs, AreRegularFilesThatTheCaseNames) {
  const std::vector<std::string> patterns{"out.txt", "src/**/*.js", "/tmp/result", "gone/list", "dir"};
  const std::vector<llm::BoxChange> changes{{"/work/out.txt", false, "file", 5},
                                            {"/work/other.txt", false, "file", 5},
                                            {"/work/src/a/b.js", false, "file", 5},
                                            {"/work/src/.x.js", false, "file", 5},
                                            {"/work/src/node_modules/m.js", false, "file", 5},
                                            {"/work/src/l.js", false, "symlink", 0},
                                            {"/work/src/old.js", true, "file", 0},
                                            {"/tmp/result", false, "symlink", 0},
                                            {"/tmp/result2", false, "file", 1},
                                            {"/work/gone", true, "directory", 0},
                                            {"/work/dir", false, "directory", 0},
                                            {"/workx/out.txt", false, "file", 1}};
  auto chosen = ChooseOutputs(patterns, "/work", changes);
  ASSERT_TRUE(chosen.has_value());
  EXPECT_EQ(chosen->copied, (std::vector<std::string>{"/work/out.txt", "/work/src/a/b.js"}));
  EXPECT_EQ(chosen->removed, (std::vector<std::string>{"/work/src/l.js", "/work/src/old.js", "/tmp/result"}));
  EXPECT_EQ(chosen->emptied, (std::vector<std::string>{"/work/gone"}));
  EXPECT_EQ(chosen->odd, (std::vector<std::string>{"/tmp/result is a symlink"}));
  EXPECT_TRUE(IsOutput({"./node_modules/own/*.js"}, "/work", "/work/node_modules/own/a.js"));
}

TEST(Outputs, AreBoundedBeforeTheyAreRead) {
  EXPECT_EQ(
      ChooseOutputs({"a", "b"}, "/w", {{"/w/a", false, "file", 1}, {"/w/b", false, "file", UINT64_MAX}}).error().code,
      Code::kTooLarge);
  std::vector<llm::BoxChange> many(1001, llm::BoxChange{"/w/a", false, "file", 1});
  EXPECT_EQ(ChooseOutputs({"*"}, "/w", many).error().code, Code::kTooLarge);
  many.pop_back();
  EXPECT_TRUE(ChooseOutputs({"*"}, "/w", many).has_value());
}

TEST(Outputs, GiveWayToTheCheckersFiles) {
  EXPECT_TRUE(Collide("/a/b", "/a/b"));
  EXPECT_TRUE(Collide("/a/b/c", "/a/b"));
  EXPECT_TRUE(Collide("/a", "/a/b"));
  EXPECT_FALSE(Collide("/a/bc", "/a/b"));
}

class Files : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "sandbar-eval-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    dir_ = pattern;
  }
  void TearDown() override { fs::remove_all(dir_); }
  void Put(const std::string& name) {
    fs::create_directories((dir_ / name).parent_path());
    std::ofstream(dir_ / name) << "{input: x, checks: [{includes: a}]}";
  }
  fs::path dir_;
};

TEST_F(Files, TheIdIsThePath) {
  for (const char* name : {"b.yaml", "a/c.yml", "a/d.mjs", "a/x.script.yaml", "_off/e.yaml", ".git/f.yaml",
                           "node_modules/g.yaml", "_h.mjs", "readme.md"})
    Put(name);
  auto files = FindCaseFiles(dir_.string());
  ASSERT_TRUE(files.has_value());
  std::string ids;
  for (const std::string& file : *files) ids += CaseId(dir_.string(), file) + " ";
  EXPECT_EQ(ids, "a/c a/d b ");
  EXPECT_EQ(ReadCase(dir_.string(), (dir_ / "b.yaml").string()).broken, "");
  EXPECT_FALSE(FindCaseFiles((dir_ / "none").string()).has_value());
}

CheckResult Judge(const std::string& yaml, const llm::Outcome& outcome) {
  EvalCase c = Decode("{input: x, checks: [{includes: a}, " + yaml + "]}");
  EXPECT_EQ(c.broken, "") << yaml;
  CheckResult result;
  EXPECT_TRUE(JudgeOutcome(c.body.checks.back(), outcome, &result));
  return result;
}

TEST(Checks, OfTheAnswerAndTheTools) {
  llm::Outcome o;
  o.answer = "The median is 3.5.";
  o.steps = 3;
  o.ms = 2500;
  o.usage = {100, 20};
  o.calls = {{"write_file", {{"path", "a.js"}}, false, std::nullopt},
             {"execute_command", {{"command", "node a.js"}}, false, 1},
             {"run_command", {{"command", "node a.js"}}, false, 0}};
  for (const char* good :
       {"{includes: '3.5'}", "{matches: 'median.*3\\.5'}", "{excludes: sorry}", "{calledTool: run_command}",
        "{calledTool: {name: run_command, times: 2}}", "{calledTool: {name: run_command, input: 'node a'}}",
        "{calledTool: {name: run_command, max: 2}}", "{notCalledTool: read_file}",
        "{toolOrder: [write_file, run_command]}", "{maxToolCalls: 3}", "{minToolCalls: 3}", "{maxSteps: 3}",
        "{maxSeconds: 3}", "{maxTokens: 120}"})
    EXPECT_TRUE(Judge(good, o).passed()) << good;
  for (const char* bad : {"{includes: '4'}", "{matches: '^median'}", "{excludes: median}", "{calledTool: read_file}",
                          "{calledTool: {name: run_command, times: 1}}", "{calledTool: {name: run_command, min: 3}}",
                          "{calledTool: {name: run_command, input: python}}", "{notCalledTool: execute_command}",
                          "{toolOrder: [run_command, write_file]}", "{maxToolCalls: 2}", "{minToolCalls: 4}",
                          "{maxSteps: 2}", "{noFailedActions: true}", "{maxSeconds: 2}", "{maxTokens: 119}"}) {
    CheckResult result = Judge(bad, o);
    EXPECT_FALSE(result.passed()) << bad;
    EXPECT_NE(result.message, "") << bad;
  }
  CheckResult half = Judge("{includes: ['3.5', mean], soft: true, threshold: 0.5}", o);
  EXPECT_DOUBLE_EQ(half.score, 0.5);
}

CaseReport Flaky() {
  CaseReport c;
  c.id = "a/b";
  for (int i = 1; i <= 3; ++i) {
    TrialReport trial;
    trial.trial = i;
    trial.checks = {{"includes <x>", false, i == 2 ? 0.0 : 1.0, 1, i == 2 ? "'x' & \x1b not in" : ""},
                    {"soft", true, 0.4, 0.5, "low"}};
    c.trials.push_back(trial);
  }
  return c;
}

TEST(Report, VerdictsOfTrialsAndCases) {
  EvalReport report;
  report.cases = {Flaky()};
  EXPECT_EQ(report.cases[0].Passes(false), 2);
  EXPECT_FALSE(report.cases[0].Passed(false));
  EXPECT_EQ(report.ExitCode(), 1);
  report.cases[0].pass_rate = 0.66;
  EXPECT_EQ(report.ExitCode(), 0);
  report.strict = true;
  EXPECT_EQ(report.ExitCode(), 1);
  report.strict = false;
  report.cases[0].trials[0].error = "no sandbox";
  EXPECT_EQ(report.cases[0].Passes(false), 1);
  report.cases[0].trials.clear();
  EXPECT_EQ(report.ExitCode(), 1);
}

TEST(Report, ASelfTestWantsRedAndNamesBlindChecks) {
  EvalReport report;
  report.self_test = true;
  CaseReport c = Flaky();
  for (TrialReport& trial : c.trials) {
    trial.checks[0].score = 0;
    trial.checks.push_back({"checker", false, 1, 1, ""});
  }
  report.cases = {c};
  EXPECT_EQ(report.ExitCode(), 0);
  EXPECT_EQ(BlindChecks(c), std::vector<std::string>{"checker"});
  report.strict = true;
  EXPECT_EQ(report.ExitCode(), 1);
  report.strict = false;
  report.cases[0].trials[0].checks[0].score = 1;
  EXPECT_EQ(report.ExitCode(), 1);
  report.cases[0].trials[0].checks[0].score = 0;
  report.cases[0].trials[0].error = "no sandbox";
  EXPECT_EQ(report.ExitCode(), 1);
}

TEST(Report, JsonJunitAndComparison) {
  EvalReport report;
  report.cases = {Flaky()};
  const json::object before = ToJson(report);
  EXPECT_NEAR(before.at("summary").at("passAt1").as_double(), 2.0 / 3, 1e-12);
  EXPECT_DOUBLE_EQ(before.at("summary").at("passAtK").as_double(), 1);
  EXPECT_DOUBLE_EQ(before.at("summary").at("passHatK").as_double(), 0);
  EXPECT_DOUBLE_EQ(before.at("summary").at("flakeRate").as_double(), 1);
  const std::string xml = ToJunit(report);
  EXPECT_NE(xml.find("tests=\"3\" failures=\"1\" errors=\"0\""), std::string::npos);
  EXPECT_NE(xml.find("includes &lt;x&gt;"), std::string::npos);
  EXPECT_EQ(xml.find('\x1b'), std::string::npos);
  report.cases[0].trials[1].checks[0].score = 1;
  auto table = Compare(before, report);
  ASSERT_TRUE(table.has_value());
  EXPECT_NE(table->find("+33%"), std::string::npos);
  EXPECT_NE(table->find("1 better, 0 worse"), std::string::npos);
  EXPECT_FALSE(Compare(json::object(), report).has_value());
}

TEST(Program, OutputInputExitAndDeadline) {
  auto end = RunProgram({{"sh", "-c", "cat; echo $X >&2; exit 7"}, {{"X", "y"}}, std::string(300'000, 'i')});
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->exit_code, 7);
  EXPECT_EQ(end->out.size(), 300'000U);
  EXPECT_EQ(end->err, "y\n");
  auto deaf = RunProgram({{"true"}, {}, std::string(300'000, 'i')});
  ASSERT_TRUE(deaf.has_value());
  EXPECT_EQ(deaf->exit_code, 0);
  EXPECT_EQ(RunProgram({{"no-such-program-here"}, {}, ""}).error().code, Code::kNotFound);
  auto slow = RunProgram({{"sleep", "1000"}, {}, "", 100});
  ASSERT_FALSE(slow.has_value());
  EXPECT_EQ(slow.error().code, Code::kTimeout);
}

}  // namespace
}  // namespace sandbar::evals
