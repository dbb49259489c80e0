// A case of an eval suite: what is prepared, what is asked, what must be true afterwards. Decoded from YAML, or from
// what a .mjs file defines (node.h); the file's path is the id. Values only.
//
//   SB_TRY(auto files, FindCaseFiles("evals"));
//   EvalCase c = ReadCase("evals", files[0]);       // c.broken says what is wrong with it
#pragma once

#include <boost/describe.hpp>
#include <boost/json/value.hpp>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "llm/options.h"
#include "wire/json_decode.h"

namespace sandbar::evals {

// One text or a list of them.
struct Words {
  std::vector<std::string> items;
  void ReadJson(wire::JsonDecoder& decoder, const boost::json::value& value);
};

struct EvalSetup {
  std::optional<std::string> image, runtime, snapshot, net;
  std::optional<std::string> upload;         // a directory beside the case file
  std::map<std::string, std::string> files;  // path in the sandbox -> content
  std::vector<std::string> commands;         // each must exit with 0
};
BOOST_DESCRIBE_STRUCT(EvalSetup, (), (image, runtime, snapshot, net, upload, files, commands))

// "run_command", or with how often and with what input.
struct ToolCheck {
  std::string name;
  std::optional<int> times, min, max;
  std::optional<std::string> input;  // RE2 on the input as JSON
  void ReadJson(wire::JsonDecoder& decoder, const boost::json::value& value);
};

struct FileCheck {
  std::string path;
  std::optional<Words> includes;
  std::optional<std::string> matches, equals;
  std::optional<bool> exists;
  void Check(wire::JsonIssues& issues) const;
};
BOOST_DESCRIBE_STRUCT(FileCheck, (), (path, includes, matches, equals, exists))

// A server of the solution that runs beside the checker, as another user without a way to become root.
struct ServeSpec {
  std::string command;
  int port = 0;  // the checker begins when something listens there
  void Check(wire::JsonIssues& issues) const;
};
BOOST_DESCRIBE_STRUCT(ServeSpec, (), (command, port))

// A program whose exit code is the verdict. It runs in a fresh fork of the prepared sandbox (judge.h), with the
// case's outputs and these files, which win over outputs of the same path.
struct CheckerCheck {
  std::string command;
  std::map<std::string, std::string> files;
  std::map<std::string, std::string> runs;  // path -> command; its stdout, from a sandbox of its own, becomes that file
  std::optional<ServeSpec> serve;
  std::optional<int64_t> timeout_ms;
  bool score = false;  // the last line of stdout is a number from 0 to 1
};
BOOST_DESCRIBE_STRUCT(CheckerCheck, (), (command, files, runs, serve, timeout_ms, score))

struct EvalCheck {
  std::optional<Words> includes, excludes;
  std::optional<std::string> matches;
  std::optional<ToolCheck> called_tool, not_called_tool;
  std::optional<std::vector<std::string>> tool_order;
  std::optional<int> max_tool_calls, min_tool_calls, max_steps;
  std::optional<bool> no_failed_actions;
  std::optional<FileCheck> file;
  std::optional<CheckerCheck> checker;
  std::optional<int64_t> max_seconds, max_tokens;
  // Of every kind: a soft check is a score that must reach its threshold only with --strict.
  std::optional<std::string> name;
  bool soft = false;
  std::optional<double> threshold;
  void Check(wire::JsonIssues& issues) const;
};
BOOST_DESCRIBE_STRUCT(EvalCheck, (),
                      (includes, excludes, matches, called_tool, not_called_tool, tool_order, max_tool_calls,
                       min_tool_calls, max_steps, no_failed_actions, file, checker, max_seconds, max_tokens, name, soft,
                       threshold))

struct EvalBody {
  std::string input;
  std::optional<std::string> name, model, timeout;
  std::vector<std::string> tags;
  std::optional<EvalSetup> setup;
  std::vector<boost::json::value> script;
  std::vector<EvalCheck> checks;
  // The files of the trial that checkers and `assert` get: paths or patterns. Nothing else of a trial reaches them.
  std::optional<std::vector<std::string>> outputs;
  std::optional<int> trials, max_steps;
  std::optional<int64_t> max_tokens;
  std::optional<double> pass_rate;
  bool assert_ = false;  // a .mjs file has a function of that name
  void Check(wire::JsonIssues& issues) const;
};
BOOST_DESCRIBE_STRUCT(EvalBody, (),
                      (input, name, model, timeout, tags, setup, script, checks, outputs, trials, max_steps, max_tokens,
                       pass_rate, assert_))

struct EvalCase {
  std::string id;      // the path below the suite's directory, without its ending
  std::string file;    // the path
  std::string broken;  // why it cannot run; it then counts as failed
  EvalBody body;
  llm::Limits limits;
};

// Every .yaml, .yml and .mjs file, sorted. Not: scripts (*.script.yaml), names that begin with "_" or ".",
// node_modules. `path` may also be one file. kBadRequest when it is neither.
Result<std::vector<std::string>> FindCaseFiles(const std::string& path);
std::string CaseId(const std::string& root, const std::string& file);
// From YAML; for a .mjs file from what node said about it.
EvalCase ReadCase(const std::string& root, const std::string& file);
void DecodeCase(const boost::json::value& value, EvalCase* out);

// The file or directory that a case names, relative to the case's own file.
std::string BesideCase(const EvalCase& c, const std::string& path);

}  // namespace sandbar::evals
