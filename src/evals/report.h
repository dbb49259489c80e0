// What an eval run found, and its forms: a table for people, JSON, JUnit, and the comparison of two runs. Values only.
#pragma once

#include <boost/json/object.hpp>
#include <string>
#include <vector>

#include "evals/checks.h"

namespace sandbar::evals {

struct TrialReport {
  int trial = 1;
  std::string error;  // it could not be run or judged; counts as failed
  llm::Outcome outcome;
  std::vector<CheckResult> checks;
  std::string label;  // of a self-test: what was sabotaged
  bool Passed(bool strict) const;
};

struct CaseReport {
  std::string id, name;
  std::vector<std::string> tags;
  double pass_rate = 1;  // of the trials, to count as passed
  std::vector<TrialReport> trials;
  int Passes(bool strict) const;
  bool Passed(bool strict) const;
};

struct EvalReport {
  std::vector<CaseReport> cases;
  std::string model;  // as asked for; empty: each case's own
  bool strict = false;
  bool self_test = false;
  bool interrupted = false;
  int64_t ms = 0;
  // 0 when every case is as it must be, else 1.
  int ExitCode() const;
};

// Of a self-test: gates that ask for work and stayed green in every sabotaged trial.
std::vector<std::string> BlindChecks(const CaseReport& c);
// With a self-test a case is as it must be when every sabotaged trial is red; with `strict` it also has no blind check.
bool AsItMustBe(const EvalReport& report, const CaseReport& c);

boost::json::object ToJson(const EvalReport& report);
// One line per case, what failed below it, a summary at the end.
std::string ToText(const EvalReport& report);
std::string ToJunit(const EvalReport& report);
// A table of this run (B) against an earlier one's JSON (A). kBadRequest when that is not one.
Result<std::string> Compare(const boost::json::object& before, const EvalReport& after);

}  // namespace sandbar::evals
