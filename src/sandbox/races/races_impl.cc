#include "sandbox/races/races_impl.h"

#include <algorithm>
#include <charconv>

#include "base/ids.h"
#include "base/log.h"
#include "egress/bounded_pattern.h"
#include "sandbox/sandboxes/pending_deletion.h"

namespace sandbar::sandbox {

namespace {

constexpr int kMaxRacers = 32;
constexpr size_t kOutputKept = 64 << 10;
constexpr size_t kMaxLine = 4 << 10;
constexpr uint64_t kScoreSteps = uint64_t{1} << 21;

Result<> Check(const RaceSpec& spec) {
  if (spec.count < 1 || spec.count > kMaxRacers)
    return Fail(Code::kBadRequest, "`count`: 1 to " + std::to_string(kMaxRacers));
  if (spec.command.empty()) return Fail(Code::kBadRequest, "`command`: is required");
  if (spec.keep != "promote" && spec.keep != "fork" && spec.keep != "none")
    return Fail(Code::kBadRequest, "`keep`: promote, fork or none");
  if (spec.score.empty()) return {};
  auto pattern = egress::BoundedPattern::Compile(spec.score, false);
  if (!pattern) return Fail(Code::kBadRequest, "`score`: " + pattern.error().message);
  if (pattern->groups() > 1) return Fail(Code::kBadRequest, "`score`: at most one group");
  return {};
}

std::optional<double> ToNumber(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n\v\f";
  text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
  while (!text.empty() && kSpace.contains(text.back())) text.remove_suffix(1);
  if (text.starts_with('+')) text.remove_prefix(1);
  // Words such as "inf" and "nan" are numbers to from_chars, and no scores.
  const size_t digit = text.starts_with('-') ? 1 : 0;
  if (digit >= text.size() || !std::string_view("0123456789.").contains(text[digit])) return std::nullopt;
  double number = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// The last number that the pattern finds in a line. kTooLarge: the budget does not suffice.
Result<std::optional<double>> LastNumber(const egress::BoundedPattern& pattern, std::string_view line,
                                         egress::StepBudget& budget) {
  line = line.substr(line.size() - std::min(line.size(), kMaxLine));
  std::optional<double> last;
  for (;;) {
    if (!budget.Take(pattern.Cost(line.size())))
      return Fail(Code::kTooLarge,
                  "`score`: the pattern found nothing at the output's end, and is too large to search "
                  "all of it: use a smaller pattern, or print the number last");
    auto match = pattern.FindFirst(line);
    if (!match) return last;
    if (auto number = ToNumber(match->group)) last = number;
    line.remove_prefix(static_cast<size_t>(match->whole.data() + match->whole.size() - line.data()));
    if (match->whole.empty()) return last;
  }
}

// The last number that the pattern finds in the output, from the last line to the first: a benchmark says its result at
// its end.
Result<std::optional<double>> ScoreOf(const std::string& score, std::string_view output) {
  SB_TRY(auto pattern, egress::BoundedPattern::Compile(score, false));
  egress::StepBudget budget(kScoreSteps);
  output = output.substr(output.size() - std::min(output.size(), kOutputKept));
  std::optional<double> number;
  while (!output.empty() && !number) {
    if (output.ends_with('\n')) output.remove_suffix(1);
    const size_t begin = output.rfind('\n') + 1;  // 0 when there is no line before it
    SB_TRY(number, LastNumber(pattern, output.substr(begin), budget));
    output = output.substr(0, begin);
  }
  return number;
}

// Does a beat b?
bool Better(const RaceSpec& spec, const Racer& a, const Racer& b) {
  if (!spec.score.empty() && a.score != b.score) return spec.lowest ? *a.score < *b.score : *a.score > *b.score;
  return a.duration_ms < b.duration_ms;
}

std::optional<size_t> Winner(const RaceSpec& spec, const std::vector<Racer>& racers) {
  std::optional<size_t> best;
  for (size_t i = 0; i < racers.size(); ++i) {
    const Racer& r = racers[i];
    const bool finished = r.error.empty() && r.exit_code == 0 && (spec.score.empty() || r.score);
    if (finished && (!best || Better(spec, r, racers[*best]))) best = i;
  }
  return best;
}

}  // namespace

Task<RaceOutcome> RacesImpl::Run(Scope scope, RaceSpec spec) {
  SB_CO_TRYV(Check(spec));
  auto work = RunNow(std::move(scope), std::move(spec));
  co_return co_await RunToEnd(&core_->tasks, std::move(work));
}

Task<store::Sandbox> RacesImpl::Promote(Scope scope, std::string fork, std::optional<std::string> into) {
  auto work = promotion_->Promote(std::move(scope), std::move(fork), std::move(into));
  co_return co_await RunToEnd(&core_->tasks, std::move(work));
}

Task<> RacesImpl::RunRacer(Scope scope, std::shared_ptr<RaceState> race, size_t index) {
  const RaceSpec* spec = &race->spec;
  Racer* racer = &race->outcome.racers[index];
  ForkSpec fork;
  fork.name = racer->name;
  fork.changes.persistent = false;  // only the winner leaves anything
  SB_CO_TRY(auto view, co_await forker_->Fork(scope, spec->source, std::move(fork)));
  racer->session = view.session.id;
  CommandSpec command;
  command.command = spec->command;
  command.args = spec->args;
  SB_CO_TRY(auto started, co_await commands_->Start(scope, racer->session, std::move(command)));
  SB_CO_TRY(auto log, co_await commands_->OpenLog(scope, racer->session, started.command.id));
  for (;;) {
    SB_CO_TRY(auto chunk, co_await log->Next());
    if (chunk.bytes.empty() && chunk.gap == 0) break;
    if (chunk.stream == 1) racer->output += chunk.bytes;
    if (racer->output.size() > 2 * kOutputKept) racer->output.erase(0, racer->output.size() - kOutputKept);
  }
  SB_CO_TRY(auto ended, co_await commands_->Wait(std::move(scope), racer->session, started.command.id));
  racer->exit_code = ended.exit_code;
  racer->duration_ms = ended.duration_ms.value_or(0);
  if (!spec->score.empty()) {
    auto find = [score = spec->score, output = racer->output] { return ScoreOf(score, output); };
    SB_CO_TRY(racer->score, co_await core_->Match(std::move(find)));
  }
  co_return Result<>{};
}

Task<RaceOutcome> RacesImpl::RunNow(Scope scope, RaceSpec wanted) {
  // Shared with the racers: a shutdown may end us before them.
  auto state = std::make_shared<RaceState>();
  state->spec = std::move(wanted);
  const RaceSpec& spec = state->spec;
  RaceOutcome& race = state->outcome;
  SB_CO_TRY(auto source, co_await records_->FindSandbox(scope, spec.source));
  if (spec.keep == "promote" && active_->Has(source.current_session))
    co_return Fail(Code::kConflict, "\"" + source.name + "\" runs: stop it first, or keep the winner as a fork");
  if (source.current_snapshot.empty() && !active_->Has(source.current_session))
    co_return Fail(Code::kConflict, "\"" + source.name + "\" has stopped and kept nothing to race from");
  race.racers.resize(static_cast<size_t>(spec.count));
  for (Racer& racer : race.racers) racer.name = NewLabel("race-", 12);
  auto remember = [scope, racers = race.racers](store::Journal& journal) -> Result<> {
    for (const Racer& racer : racers)
      SB_TRYV(AddPendingDeletion(journal, {{scope.team, scope.project, racer.name}, true}));
    return {};
  };
  SB_CO_TRYV(co_await core_->Journal(std::move(remember)));
  std::vector<std::shared_ptr<SharedResult<void>>> runs;
  for (size_t i = 0; i < race.racers.size(); ++i) {
    runs.push_back(std::make_shared<SharedResult<void>>(core_->ex));
    core_->tasks.Spawn(Produce(runs.back(), RunRacer(scope, state, i)));
  }
  for (size_t i = 0; i < runs.size(); ++i) {
    auto run = co_await runs[i]->Wait();
    if (!run) race.racers[i].error = run.error().message;
  }
  if (core_->closing) co_return Fail(Code::kCancelled, "the server is shutting down");
  race.winner = Winner(spec, race.racers);
  Result<> kept;
  if (race.winner && spec.keep != "none") kept = co_await KeepWinner(scope, source, state);
  for (size_t i = 0; i < race.racers.size(); ++i) {
    if (kept && spec.keep == "fork" && race.winner == i) continue;
    auto dropped = co_await deleter_->Delete(scope, race.racers[i].name, true);
    // Its deletion stays pending: the next start tries again.
    const bool gone = dropped || dropped.error().code == Code::kNotFound;
    if (!gone) log::Warn("race: {} is not gone: {}", race.racers[i].name, dropped.error().message);
  }
  if (!kept) co_return std::unexpected(std::move(kept).error());
  co_return race;
}

Task<> RacesImpl::KeepWinner(Scope scope, store::Sandbox source, std::shared_ptr<RaceState> race) {
  const std::string name = race->outcome.racers[*race->outcome.winner].name;
  if (race->spec.keep == "promote") {
    SB_CO_TRY(auto promoted, co_await promotion_->Promote(std::move(scope), name, source.name));
    race->outcome.snapshot = promoted.current_snapshot;
    co_return Result<>{};
  }
  UpdateSpec update;
  update.persistent = source.persistent;
  auto cancel = [key = store::SandboxKey{scope.team, scope.project, name}](store::Journal& journal) {
    return CancelDeletion(journal, key);
  };
  SB_CO_TRYV(co_await updater_->Update(std::move(scope), name, std::move(update)));
  co_return co_await core_->Journal(std::move(cancel));
}

}  // namespace sandbar::sandbox
