// Cases that are JavaScript: node loads the file through our small runner (sdk/eval-run.mjs), once to say what the case
// is and once per trial to run its assert. The file is the user's own program on the user's own machine; what it is
// given about the sandbox is data. Blocking: call it on a pool.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "evals/checks.h"

namespace sandbar::evals {

struct NodeRunner {
  std::string runner;                              // path of eval-run.mjs; empty: not installed
  std::map<std::string, std::string> environment;  // besides ours: where the server is
};

// The case, or one that is broken and says why.
EvalCase ReadNodeCase(const NodeRunner& node, const std::string& root, const std::string& file);
// `result` is what the assert function gets. A program that fails is a check that failed.
CheckResult RunAssert(const NodeRunner& node, const std::string& file, const boost::json::object& result);

struct Program {
  std::vector<std::string> argv;
  std::map<std::string, std::string> environment;
  std::string input;
  int timeout_ms = 60'000;
};
struct ProgramEnd {
  int exit_code = 0;  // 128 + n after signal n
  std::string out, err;
};
// kTimeout, kNotFound (no such program), kTooLarge (more than 16 MiB of output): the program is gone then, too.
Result<ProgramEnd> RunProgram(const Program& program);

}  // namespace sandbar::evals
