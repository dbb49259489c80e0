// Models without a model: a script whose next step depends on what the sandbox really returned, and a recording.
// No I/O, single owner.
//
//   - tool: run_command                      # steps are tried in order; one that does not match is skipped
//     input: {command: node a.js}
//   - if: 'median: ([\d.]+)'                 # RE2, searched in the last tool results
//     text: the median is {{1}}              # {{0}} the match, {{1}}… its groups, {{result}} everything, {{trial}}
//   - text: it did not work
#pragma once

#include <boost/json/array.hpp>
#include <optional>
#include <string>
#include <vector>

#include "llm/model.h"

namespace sandbar::llm {

struct StepCall {
  std::string tool;
  json::object input;
};

struct Step {
  std::optional<std::string> condition;  // `if`
  std::vector<int> trials;               // only in these trials; empty: in all
  std::string text;
  std::vector<StepCall> calls;
  int repeat = 1;  // how often it may be taken before the script moves on
  Usage usage;
};

// kBadRequest names the step and the key.
Result<std::vector<Step>> ParseSteps(const json::array& steps);

class Script {
 public:
  Script(std::vector<Step> steps, int trial) : steps_(std::move(steps)), trial_(trial) {}
  // kUnavailable when no further step fits.
  Result<Reply> Next(const std::string& last_result);

 private:
  bool Fits(const Step& step, const std::string& last, std::vector<std::string>* groups) const;

  std::vector<Step> steps_;
  int trial_;
  size_t at_ = 0;
  int taken_ = 0;  // of the step at `at_`
  int calls_ = 0;
};

// "{{name}}" -> its value; what is unknown stays as it is.
std::string Fill(std::string_view text, const std::vector<std::string>& groups, const std::string& last, int trial);

// The replies of a transcript, in order.
Result<std::vector<Reply>> RecordedReplies(const json::array& events);

}  // namespace sandbar::llm
