// Runs a suite: prepares each case once, forks a sandbox per trial, lets the model work, judges the trial elsewhere
// (judge.h), removes everything.
// Single loop; at most `max_concurrency` trials at a time.
//
//   SB_CO_TRY(auto cases, FindCases(options, hooks.node));
//   EvalRunner runner(ex, &api, std::move(options), std::move(hooks));
//   SB_CO_TRY(EvalReport report, co_await runner.Run(std::move(cases)));
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/api_client.h"
#include "evals/case.h"
#include "evals/node.h"
#include "evals/report.h"
#include "llm/model.h"

namespace sandbar::evals {

struct EvalHooks {
  std::function<Task<int>()> stop;  // completes when the user wants to stop
  std::function<void(const std::string& line)> say;
  llm::Environment environment;
  NodeRunner node;
};

// Reads the suite: every file is a case, broken ones too; `options.tags` choose. kBadRequest when there is none.
// Blocking.
Result<std::vector<EvalCase>> FindCases(const llm::EvalOptions& options, const NodeRunner& node);

class EvalRunner {
 public:
  // `api` outlives it.
  EvalRunner(asio::any_io_executor ex, client::ApiClient* api, llm::EvalOptions options, EvalHooks hooks);
  ~EvalRunner();
  EvalRunner(const EvalRunner&) = delete;
  EvalRunner& operator=(const EvalRunner&) = delete;

  Task<EvalReport> Run(std::vector<EvalCase> cases);

 private:
  struct Prepared;
  struct Unit;
  Task<> Watch();
  Task<> Work();
  Task<> Stopped();
  Task<> RunUnit(Unit* unit);
  Task<std::string> Ready(Prepared* prepared);
  Task<std::string> Prepare(const EvalCase* c);
  Task<> Fill(llm::Box box, const EvalCase* c);
  Task<> Trial(Unit* unit, llm::Box box);
  Task<> Sabotage(Unit* unit, llm::Box box);
  Task<> Judge(Unit* unit, llm::Box box);
  Task<> Assert(Unit* unit, std::optional<llm::Box> box);
  Task<> Interruptible(Task<> work);
  Task<> Remove(std::string name);
  Result<std::unique_ptr<llm::Model>> ModelFor(const EvalCase& c, int trial) const;
  void MakeUnits();
  void Announce(const Unit& unit) const;

  asio::any_io_executor ex_;
  client::ApiClient* api_;
  llm::EvalOptions options_;
  EvalHooks hooks_;
  std::vector<EvalCase> cases_;
  std::vector<std::unique_ptr<Prepared>> prepared_;  // one per case
  std::vector<std::unique_ptr<Unit>> units_;         // every trial
  size_t next_ = 0;
  bool stopping_ = false;
  Event changed_;
  asio::thread_pool pool_;  // for node
};

}  // namespace sandbar::evals
