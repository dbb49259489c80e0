// The loop: ask the model, run the tools that it calls, give the results back, until it answers or a limit is hit.
// Single loop thread. The state can be read at any time, also after the run was cancelled (deadline, Ctrl-C).
//
//   ToolLoop loop(model.get(), tools.get(), limits, record);
//   SB_CO_TRYV(co_await loop.Go(std::move(system), std::move(prompt)));
//   co_return ExitCode(loop.outcome().status);
#pragma once

#include <string>
#include <vector>

#include "llm/model.h"
#include "llm/options.h"
#include "llm/tools.h"

namespace sandbar::llm {

enum class Status { kAnswered, kFailed, kConfiguration, kLimit, kInterrupted };
const char* Name(Status status);
int ExitCode(Status status);  // 0, 1, 2, 3, 130

// A tool call that was made, for checks.
struct CalledTool {
  std::string name;  // as the model called it
  json::object input;
  bool is_error = false;
  std::optional<int> exit_code;
};

struct Outcome {
  Status status = Status::kFailed;
  std::string reason;  // why, in one line; never empty at the end
  std::string answer;  // only when answered
  int steps = 0;
  Usage usage;
  int64_t ms = 0;
  std::vector<CalledTool> calls;
};
json::object ToJson(const Outcome& outcome);

class ToolLoop {
 public:
  // Both outlive it.
  ToolLoop(Model* model, ToolBox* tools, Limits limits, Record record);
  // Ends with success whatever came out of it (outcome()); an Error only when it was cancelled from outside.
  Task<> Go(std::string system, std::string prompt);
  // For a run that was cancelled, or that failed before or after the loop. The first end counts, but an answer can
  // still turn into a failure.
  void End(Status status, std::string reason);
  const Outcome& outcome() const { return outcome_; }

 private:
  Task<> Work();
  void Settle(Error error);
  Task<bool> Step();
  bool Settles(const Reply& reply);
  Task<> CallTools(Turn* turn);

  Model* model_;
  ToolBox* tools_;
  Limits limits_;
  Record record_;
  Conversation conversation_;
  Outcome outcome_;
  int64_t started_;
  bool ended_ = false;
};

}  // namespace sandbar::llm
