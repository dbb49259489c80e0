// Judging a trial: the checks of a case against what the agent said, did and left in the sandbox. Single loop.
#pragma once

#include <string>
#include <vector>

#include "agent/box.h"
#include "agent/eval_case.h"
#include "agent/loop.h"

namespace sandbar::agent {

struct CheckResult {
  std::string name;
  bool soft = false;
  double score = 0;  // 0 to 1
  double threshold = 1;
  std::string message;  // why it is not 1
  bool demands = true;  // asks for work to be done: green without any, it proves nothing
  bool passed() const { return score >= threshold; }
};

// `c` and `outcome` outlive the call. An Error means that the sandbox is gone: the trial cannot be judged.
Task<std::vector<CheckResult>> RunChecks(client::ApiClient* api, Box box, const EvalCase* c, const Outcome* outcome);

// Those that need no sandbox; exposed for tests. `out` gets the score and the message.
bool JudgeOutcome(const EvalCheck& check, const Outcome& outcome, CheckResult* out);
std::string CheckName(const EvalCheck& check);
bool DemandsWork(const EvalCheck& check);

}  // namespace sandbar::agent
