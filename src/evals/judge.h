// Judges a trial in sandboxes that the trial never touched. The trial is stopped first. A reader, forked from what it
// left, hands out the bytes of the files that the case names (`outputs`) and runs no program. Every checker then gets a
// fresh fork of the prepared sandbox, without a network, with copies of those files. So nothing that the trial changed
// takes part in a verdict: no process, no program, no variable, no file but the named ones. Single loop.
//
//   TrialJudge judge(std::move(bench));
//   SB_CO_TRYV(co_await judge.Collect());
//   SB_CO_TRY(auto results, co_await judge.Check(&outcome));
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "evals/checks.h"
#include "llm/box.h"

namespace sandbar::evals {

// What the runner lends to a judge. Everything outlives it.
struct Bench {
  client::ApiClient* api = nullptr;
  std::string prepared;  // the sandbox that the trial was forked from; stopped
  llm::Box trial;
  const EvalCase* of = nullptr;
  std::vector<std::string>* boxes = nullptr;    // sandboxes that exist: whoever ends the trial early removes them
  std::function<Task<>(Task<>)> interruptible;  // gives the work up, with an Error, when the user stops the run
  std::function<Task<>(std::string)> remove;
};

class TrialJudge {
 public:
  explicit TrialJudge(Bench bench) : bench_(std::move(bench)) {}
  TrialJudge(const TrialJudge&) = delete;
  TrialJudge& operator=(const TrialJudge&) = delete;

  // Stops the trial and reads what the checks need of it. Nothing to do for a case that judges words only.
  Task<> Collect();
  // An Error means that the trial cannot be judged.
  Task<std::vector<CheckResult>> Check(const llm::Outcome* outcome);
  // A fork of the prepared sandbox with the outputs in it; removed with the trial.
  Task<llm::Box> Fork(int64_t timeout_ms);

 private:
  Task<> Read(llm::Box reader);
  Task<> ReadOutputs(llm::Box reader);
  Task<> Put(llm::Box box, const CheckerCheck* check);
  Task<> RunChecker(const CheckerCheck* check, CheckResult* out);
  Task<> InFreshFork(const CheckerCheck* check, std::function<Task<>(llm::Box)> work);
  Task<> RunInPlace(llm::Box box, const CheckerCheck* check, std::string command, llm::Ran* ran);
  Task<> RunVerdict(llm::Box box, const CheckerCheck* check, std::vector<client::TarItem> said, CheckResult* out);
  Task<std::string> Serve(llm::Box box, const ServeSpec* serve);
  Task<> Drop(std::string name);

  Bench bench_;
  std::vector<client::TarItem> outputs_;  // absolute names
  std::vector<std::string> removed_;      // named files that the trial deleted, or replaced by something else
  std::vector<std::string> odd_;          // named one by one, and no regular files
  std::map<const FileCheck*, Result<std::string>> texts_;
};

// The outputs among the changes that a trial made below `cwd`. Exposed for tests.
struct ChosenOutputs {
  std::vector<std::string> copied;   // regular files that are new or changed
  std::vector<std::string> removed;  // files that are gone
  std::vector<std::string> emptied;  // directories that are gone, of which files may be outputs
  std::vector<std::string> odd;      // a path that `outputs` spells out and that is a link, a device or the like
};
// kTooLarge when there are too many of them, or too many bytes.
Result<ChosenOutputs> ChooseOutputs(const std::vector<std::string>& patterns, const std::string& cwd,
                                    const std::vector<llm::BoxChange>& changes);
// Is the path one of the outputs? Wildcards find neither dotfiles nor what is below node_modules.
bool IsOutput(const std::vector<std::string>& patterns, const std::string& cwd, std::string_view path);
// Would a file at one of the paths be in the way of the other?
bool Collide(std::string_view a, std::string_view b);

}  // namespace sandbar::evals
