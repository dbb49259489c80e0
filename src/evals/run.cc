#include "evals/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/ids.h"
#include "evals/judge.h"
#include "llm/session.h"
#include "llm/transcript.h"

namespace sandbar::evals {
namespace json = boost::json;
namespace {

namespace fs = std::filesystem;

constexpr int64_t kSetupMs = 600'000;
constexpr int64_t kGraceMs = 600'000;  // for the checks, and should we be killed
constexpr int64_t kAssertMs = 60'000;
constexpr auto kDeleteTime = std::chrono::minutes(2);
// No letters and no digits: nothing that a check could be looking for.
constexpr char kGarbage[] = "~#~ ?! ~#~ ;; ~#~";

// What a self-test puts in place of the model's work. Both leave the prepared sandbox as it was, but for the second,
// which also spoils the files that checks look at.
constexpr const char* kSabotages[] = {"nothing done", "garbled"};

std::string TranscriptPath(const std::string& dir, const std::string& id, int trial) {
  return (fs::path(dir) / id / (std::to_string(trial) + ".jsonl")).string();
}

}  // namespace

Result<std::vector<EvalCase>> FindCases(const llm::EvalOptions& options, const NodeRunner& node) {
  SB_TRY(std::vector<std::string> files, FindCaseFiles(options.path));
  std::vector<EvalCase> cases;
  for (const std::string& file : files) {
    EvalCase c = file.ends_with(".mjs") ? ReadNodeCase(node, options.path, file) : ReadCase(options.path, file);
    const bool twice = std::ranges::any_of(cases, [&](const EvalCase& other) { return other.id == c.id; });
    if (twice) c.broken = "another file has the same id: " + c.id;
    const auto wanted = [&](const std::string& tag) { return std::ranges::count(c.body.tags, tag) > 0; };
    // A broken case has no readable tags: it is never filtered away.
    if (options.tags.empty() || !c.broken.empty() || std::ranges::any_of(options.tags, wanted))
      cases.push_back(std::move(c));
  }
  if (cases.empty())
    return Fail(Code::kBadRequest,
                "no case found in " + options.path + (options.tags.empty() ? "" : " with such a tag") +
                    "\n  fix: cases are .yaml, .yml and .mjs files; sandbar eval DIR --list shows them");
  return cases;
}

// The sandbox that the trials of a case are forked from: made by the first that needs it, removed by the last.
struct EvalRunner::Prepared {
  enum class State { kNone, kBusy, kReady, kFailed };
  const EvalCase* of = nullptr;
  State state = State::kNone;
  std::string name;   // of the sandbox
  std::string error;  // when it failed
  int left = 0;       // trials to come
};

struct EvalRunner::Unit {
  Prepared* prepared = nullptr;
  TrialReport report;
  std::vector<std::string> boxes;  // sandboxes of this trial that exist, the oldest first
  bool done = false;
};

EvalRunner::EvalRunner(asio::any_io_executor ex, client::ApiClient* api, llm::EvalOptions options, EvalHooks hooks)
    : ex_(std::move(ex)), api_(api), options_(std::move(options)), hooks_(std::move(hooks)), changed_(ex_), pool_(1) {}

EvalRunner::~EvalRunner() {
  pool_.join();
}

void EvalRunner::MakeUnits() {
  for (const EvalCase& c : cases_) {
    auto& prepared = prepared_.emplace_back(std::make_unique<Prepared>());
    prepared->of = &c;
    const int trials = options_.self_test ? static_cast<int>(std::size(kSabotages))
                                          : options_.trials.value_or(c.body.trials.value_or(1));
    prepared->left = trials;
    for (int i = 0; i < trials; ++i) {
      auto& unit = units_.emplace_back(std::make_unique<Unit>());
      unit->prepared = prepared.get();
      unit->report.trial = i + 1;
      if (options_.self_test) unit->report.label = kSabotages[i];
    }
  }
}

Task<EvalReport> EvalRunner::Run(std::vector<EvalCase> cases) {
  const int64_t began = NowMs();
  cases_ = std::move(cases);
  MakeUnits();
  TaskGroup watcher(ex_), workers(ex_);
  watcher.Spawn(Watch());
  for (int i = 0; i < options_.max_concurrency; ++i) workers.Spawn(Work());
  co_await workers.Join();
  co_await watcher.Close();
  EvalReport report;
  report.model = options_.model;
  report.strict = options_.strict;
  report.self_test = options_.self_test;
  report.interrupted = stopping_;
  report.ms = NowMs() - began;
  for (const auto& prepared : prepared_) {
    const EvalCase& c = *prepared->of;
    CaseReport& out = report.cases.emplace_back();
    out.id = c.id;
    out.name = c.body.name.value_or(c.id);
    out.tags = c.body.tags;
    out.pass_rate = c.body.pass_rate.value_or(1);
    for (const auto& unit : units_)
      if (unit->prepared == prepared.get()) out.trials.push_back(std::move(unit->report));
  }
  co_return report;
}

// Nothing is cancelled but the models' own work: sandboxes in the making are finished and removed in order.
Task<> EvalRunner::Watch() {
  SB_CO_TRYV(co_await hooks_.stop());
  hooks_.say("stopping: removing the sandboxes");
  stopping_ = true;
  changed_.Notify();
  co_return Result<>{};
}

Task<> EvalRunner::Stopped() {
  while (!stopping_) SB_CO_TRYV(co_await changed_.Wait());
  co_return Result<>{};
}

Task<> EvalRunner::Work() {
  while (next_ < units_.size()) {
    Unit* unit = units_[next_++].get();
    auto ran = co_await RunUnit(unit);
    if (!ran) unit->report.error = ran.error().message;
    Announce(*unit);
    Prepared* prepared = unit->prepared;
    if (--prepared->left == 0 && !prepared->name.empty()) co_await Remove(prepared->name);
  }
  co_return Result<>{};
}

void EvalRunner::Announce(const Unit& unit) const {
  const TrialReport& t = unit.report;
  const std::string what = t.label.empty() ? fmt::format("trial {}", t.trial) : t.label;
  hooks_.say(fmt::format("{} {} ({}, {:.1f} s)", t.Passed(options_.strict) ? "green" : "red  ", unit.prepared->of->id,
                         what, static_cast<double>(t.outcome.ms) / 1000));
}

// Gives the work up when the user stops the run. A sandbox is never made in here: one in the making would be lost.
Task<> EvalRunner::Interruptible(Task<> work) {
  using namespace asio::experimental::awaitable_operators;
  Task<> stop = Stopped();
  auto first = co_await (std::move(work) || std::move(stop));
  if (first.index() == 1) co_return Fail(Code::kCancelled, "interrupted");
  co_return std::get<0>(std::move(first));
}

Task<> EvalRunner::RunUnit(Unit* unit) {
  const EvalCase& c = *unit->prepared->of;
  if (!c.broken.empty()) co_return Fail(Code::kBadRequest, c.broken);
  if (stopping_) co_return Fail(Code::kCancelled, "interrupted");
  SB_CO_TRY(std::string from, co_await Ready(unit->prepared));
  if (stopping_) co_return Fail(Code::kCancelled, "interrupted");
  SB_CO_TRY(llm::Box box, co_await llm::ForkBox(api_, std::move(from), c.limits.timeout_ms + kGraceMs));
  unit->boxes.push_back(box.name);
  Task<> work = options_.self_test ? Sabotage(unit, box) : Trial(unit, box);
  Result<> done = co_await Interruptible(std::move(work));
  if (done) done = co_await Judge(unit, box);
  // The newest first: a sandbox goes before the one that it was forked from.
  while (!unit->boxes.empty()) {
    std::string name = std::move(unit->boxes.back());
    unit->boxes.pop_back();
    co_await Remove(std::move(name));
  }
  co_return done;
}

// The name of the sandbox to fork.
Task<std::string> EvalRunner::Ready(Prepared* prepared) {
  using State = Prepared::State;
  if (prepared->state == State::kNone) {
    prepared->state = State::kBusy;
    auto name = co_await Prepare(prepared->of);
    prepared->state = name ? State::kReady : State::kFailed;
    if (name)
      prepared->name = *name;
    else
      prepared->error = "setup: " + name.error().message;
    changed_.Notify();
  }
  while (prepared->state == State::kBusy) SB_CO_TRYV(co_await changed_.Wait());
  if (prepared->state == State::kFailed) co_return Fail(Code::kInternal, prepared->error);
  co_return prepared->name;
}

Task<std::string> EvalRunner::Prepare(const EvalCase* c) {
  using namespace asio::experimental::awaitable_operators;
  const EvalSetup setup = c->body.setup.value_or(EvalSetup());
  llm::BoxSpec spec{setup.image, setup.runtime, setup.snapshot, setup.net.value_or("deny"), kSetupMs + kGraceMs};
  // A case means the same on every server, whatever image its operator has made the default.
  if (!spec.image && !spec.snapshot && !spec.runtime) spec.runtime = "node24";
  // Its forks inherit the demand.
  spec.engine = options_.engine;
  spec.min_class = options_.min_class;
  SB_CO_TRY(llm::Box box, co_await llm::CreateBox(api_, std::move(spec)));
  Task<> fill = Fill(box, c);
  Task<> stop = Stopped();
  auto first = co_await (std::move(fill) || std::move(stop));
  Result<> filled = Fail(Code::kCancelled, "interrupted");
  if (first.index() == 0) filled = std::get<0>(std::move(first));
  if (filled) filled = co_await llm::StopBox(api_, box);
  if (!filled) {
    co_await Remove(box.name);
    co_return std::unexpected(std::move(filled).error());
  }
  co_return box.name;
}

Task<> EvalRunner::Fill(llm::Box box, const EvalCase* c) {
  if (!c->body.setup) co_return Result<>{};
  std::vector<client::TarItem> files;
  if (c->body.setup->upload) {
    SB_CO_TRY(files, llm::FilesBelow(BesideCase(*c, *c->body.setup->upload)));
  }
  for (const auto& [name, content] : c->body.setup->files) files.push_back({name, "", content});
  SB_CO_TRYV(co_await llm::WriteFiles(api_, box, std::move(files)));
  for (const std::string& command : c->body.setup->commands) {
    std::vector<std::string> argv{"sh", "-c", command};
    SB_CO_TRY(llm::Ran ran, co_await llm::RunIn(api_, box, std::move(argv), kSetupMs));
    if (ran.exit_code != 0)
      co_return Fail(Code::kBadRequest, fmt::format("'{}' ended with {}: {}", llm::OneLine(command, 80), ran.exit_code,
                                                    llm::OneLine(ran.err.empty() ? ran.out : ran.err, 300)));
  }
  co_return Result<>{};
}

Result<std::unique_ptr<llm::Model>> EvalRunner::ModelFor(const EvalCase& c, int trial) const {
  llm::ModelOptions model_options{hooks_.environment, trial};
  if (!options_.replay.empty())
    return llm::MakeModel(ex_, "replay:" + TranscriptPath(options_.replay, c.id, trial), model_options);
  if (!options_.model.empty()) return llm::MakeModel(ex_, options_.model, model_options);
  if (!c.body.script.empty())
    return llm::MakeScriptedModel(json::array(c.body.script.begin(), c.body.script.end()), trial);
  std::string spec = c.body.model.value_or(hooks_.environment("SANDBAR_MODEL"));
  if (spec.empty())
    return Fail(Code::kBadRequest, "no model: the case has neither `model` nor `script`, and --model was not given");
  for (const std::string kind : {"scripted:", "replay:"})
    if (spec.starts_with(kind)) spec = kind + BesideCase(c, spec.substr(kind.size()));
  return llm::MakeModel(ex_, spec, model_options);
}

Task<> EvalRunner::Trial(Unit* unit, llm::Box box) {
  const EvalCase& c = *unit->prepared->of;
  SB_CO_TRY(auto model, ModelFor(c, unit->report.trial));
  std::string file;
  if (!options_.record.empty()) {
    file = TranscriptPath(options_.record, c.id, unit->report.trial);
    SB_CO_TRYV(llm::MakePrivateDirectories(fs::path(file).parent_path().string()));
  }
  SB_CO_TRY(llm::Transcript transcript, llm::Transcript::Open(file, false));
  llm::Record record = [&transcript](json::object event) { transcript.Add(std::move(event)); };
  auto tools = llm::MakeMcpTools(api_, box.name);
  llm::ToolLoop loop(model.get(), tools.get(), c.limits, record);
  record({{"type", "start"},
          {"prompt", c.body.input},
          {"case", c.id},
          {"trial", unit->report.trial},
          {"sandbox", box.name}});
  std::string net = "deny";
  if (c.body.setup && c.body.setup->net) net = *c.body.setup->net;
  std::string system = llm::SystemPrompt(box, net), prompt = c.body.input;
  SB_CO_TRYV(co_await loop.Go(std::move(system), std::move(prompt)));
  unit->report.outcome = loop.outcome();
  json::object end = llm::ToJson(loop.outcome());
  end["type"] = "end";
  record(std::move(end));
  if (transcript.failed()) co_return std::unexpected(*transcript.failed());
  SB_CO_TRYV(co_await llm::StillThere(api_, box));
  // Without an answer there is nothing to judge: the first check says so.
  CheckResult answered{"answered", false, 0, 1,
                       std::string(llm::Name(loop.outcome().status)) + ": " + loop.outcome().reason};
  if (loop.outcome().status == llm::Status::kAnswered) answered = {"answered", false, 1, 1, ""};
  unit->report.checks.push_back(std::move(answered));
  co_return Result<>{};
}

Task<> EvalRunner::Sabotage(Unit* unit, llm::Box box) {
  llm::Outcome& outcome = unit->report.outcome;
  outcome.status = llm::Status::kAnswered;
  outcome.reason = "self-test";
  if (unit->report.label == kSabotages[1]) {
    outcome.answer = kGarbage;
    const EvalBody& body = unit->prepared->of->body;
    std::set<std::string> paths;
    for (const EvalCheck& check : body.checks)
      if (check.file && check.file->exists.value_or(true)) paths.insert(check.file->path);
    for (const std::string& path : body.outputs.value_or(std::vector<std::string>()))
      if (path.find_first_of("*?[") == std::string::npos) paths.insert(path);
    std::vector<client::TarItem> files;
    for (const std::string& path : paths) files.push_back({path, "", kGarbage});
    SB_CO_TRYV(co_await llm::WriteFiles(api_, std::move(box), std::move(files)));
  }
  co_return Result<>{};
}

Task<> EvalRunner::Judge(Unit* unit, llm::Box box) {
  const EvalCase* c = unit->prepared->of;
  Bench bench;
  bench.api = api_;
  bench.prepared = unit->prepared->name;
  bench.trial = std::move(box);
  bench.of = c;
  bench.boxes = &unit->boxes;
  bench.interruptible = [this](Task<> work) { return Interruptible(std::move(work)); };
  bench.remove = [this](std::string name) { return Remove(std::move(name)); };
  TrialJudge judge(std::move(bench));
  SB_CO_TRYV(co_await judge.Collect());
  SB_CO_TRY(auto checks, co_await judge.Check(&unit->report.outcome));
  for (CheckResult& check : checks) unit->report.checks.push_back(std::move(check));
  if (!c->body.assert_) co_return Result<>{};
  std::optional<llm::Box> fork;
  if (c->body.outputs) {
    SB_CO_TRY(fork, co_await judge.Fork(kAssertMs));
  }
  co_return co_await Assert(unit, std::move(fork));
}

// `box`: what the function can look at; none when the case names no outputs.
Task<> EvalRunner::Assert(Unit* unit, std::optional<llm::Box> box) {
  const EvalCase* c = unit->prepared->of;
  json::object result = llm::ToJson(unit->report.outcome);
  result["id"] = c->id;
  result["trial"] = unit->report.trial;
  result["sandbox"] = nullptr;
  if (box) result["sandbox"] = json::object{{"name", box->name}, {"session", box->session}, {"cwd", box->cwd}};
  auto assert_it = [node = hooks_.node, file = c->file, result = std::move(result)] {
    return RunAssert(node, file, result);
  };
  CheckResult verdict = co_await Offload(pool_, std::move(assert_it));
  unit->report.checks.push_back(std::move(verdict));
  co_return Result<>{};
}

Task<> EvalRunner::Remove(std::string name) {
  Task<> deleting = llm::DeleteBox(api_, name);
  auto gone = co_await WithTimeout(std::move(deleting), kDeleteTime);
  if (!gone) hooks_.say("could not delete the sandbox " + name + ": " + gone.error().message);
  co_return Result<>{};
}

}  // namespace sandbar::evals
