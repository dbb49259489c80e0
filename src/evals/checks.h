// Judging a trial: the checks of a case against what the model said and did, and against files and the ends of programs
// that judge.h brings. Values only.
#pragma once

#include <string>
#include <vector>

#include "evals/case.h"
#include "llm/box.h"
#include "llm/loop.h"

namespace sandbar::evals {

struct CheckResult {
  std::string name;
  bool soft = false;
  double score = 0;  // 0 to 1
  double threshold = 1;
  std::string message;  // why it is not 1
  bool demands = true;  // asks for work to be done: green without any, it proves nothing
  bool passed() const { return score >= threshold; }
};

// Those that need no sandbox; false for others. `out` gets the score and the message.
bool JudgeOutcome(const EvalCheck& check, const llm::Outcome& outcome, CheckResult* out);
// A file as it could be read. An Error means that the sandbox is gone: the trial cannot be judged.
Result<> JudgeText(const FileCheck& check, const Result<std::string>& text, CheckResult* out);
// A checker that ended.
void JudgeRan(const CheckerCheck& check, const llm::Ran& ran, CheckResult* out);
std::string CheckName(const EvalCheck& check);
bool DemandsWork(const EvalCheck& check);

}  // namespace sandbar::evals
