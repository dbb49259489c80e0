#include "evals/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "client/api_client.h"
#include "evals/stats.h"
#include "llm/transcript.h"

namespace sandbar::evals {
namespace {

namespace json = boost::json;
using client::Number;
using client::Object;
using client::Text;

struct Totals {
  int cases = 0, good = 0, flaky = 0;
  double pass_at_1 = 0, pass_at_k = 0, pass_hat_k = 0;  // means over the cases
  int64_t tokens = 0;
};

Totals Sum(const EvalReport& report) {
  Totals t;
  for (const CaseReport& c : report.cases) {
    const int n = static_cast<int>(c.trials.size()), passes = c.Passes(report.strict);
    ++t.cases;
    t.good += AsItMustBe(report, c) ? 1 : 0;
    t.flaky += passes > 0 && passes < n ? 1 : 0;
    t.pass_at_1 += PassAtK(n, passes, 1);
    t.pass_at_k += PassAtK(n, passes, n);
    t.pass_hat_k += PassHatK(n, passes, n);
    for (const TrialReport& trial : c.trials) t.tokens += trial.outcome.usage.total();
  }
  const double count = std::max(1, t.cases);
  t.pass_at_1 /= count;
  t.pass_at_k /= count;
  t.pass_hat_k /= count;
  return t;
}

int64_t Milliseconds(const CaseReport& c) {
  int64_t ms = 0;
  for (const TrialReport& trial : c.trials) ms += trial.outcome.ms;
  return ms;
}

json::object CheckJson(const CheckResult& check) {
  return {{"name", check.name},           {"soft", check.soft},       {"score", check.score},
          {"threshold", check.threshold}, {"passed", check.passed()}, {"message", check.message}};
}

json::object TrialJson(const TrialReport& trial, bool strict) {
  json::array checks;
  for (const CheckResult& check : trial.checks) checks.push_back(CheckJson(check));
  json::object out{{"trial", trial.trial},
                   {"passed", trial.Passed(strict)},
                   {"checks", std::move(checks)},
                   {"run", llm::ToJson(trial.outcome)}};
  if (!trial.error.empty()) out["error"] = trial.error;
  if (!trial.label.empty()) out["sabotage"] = trial.label;
  return out;
}

// Why a trial is red, one reason per line.
std::vector<std::string> Reasons(const TrialReport& trial, bool strict) {
  std::vector<std::string> out;
  if (!trial.error.empty()) out.push_back("error: " + trial.error);
  for (const CheckResult& check : trial.checks)
    if (!check.passed() && (!check.soft || strict)) out.push_back(check.name + ": " + check.message);
  return out;
}

std::string TrialName(const CaseReport& c, const TrialReport& trial) {
  if (!trial.label.empty()) return c.id + " [" + trial.label + "]";
  return c.trials.size() == 1 ? c.id : fmt::format("{} [trial {}]", c.id, trial.trial);
}

// XML has no way to write most control characters at all.
std::string EscapeXml(std::string_view text) {
  return llm::EscapeHtml(text);
}

std::string CaseLines(const EvalReport& report, const CaseReport& c) {
  const int n = static_cast<int>(c.trials.size()), passes = c.Passes(report.strict);
  const bool good = AsItMustBe(report, c);
  std::string out = fmt::format("{}  {}", good ? "ok  " : "FAIL", c.id);
  if (report.self_test) {
    for (const TrialReport& trial : c.trials) {
      const bool red = trial.error.empty() && !trial.Passed(report.strict);
      out += fmt::format("  {}: {}", trial.label, red ? "red" : trial.error.empty() ? "STILL GREEN" : "error");
    }
  } else if (n > 1) {
    out += fmt::format("  {}/{} trials  pass@{} {:.2f}  pass^{} {:.2f}", passes, n, n, PassAtK(n, passes, n), n,
                       PassHatK(n, passes, n));
  }
  out += fmt::format("  {:.1f} s\n", static_cast<double>(Milliseconds(c)) / 1000);
  if (report.self_test)
    for (const std::string& name : BlindChecks(c))
      out += fmt::format("      blind: {} is green without any work\n", llm::OneLine(name, 100));
  for (const TrialReport& trial : c.trials) {
    const bool show = report.self_test ? !trial.error.empty() : !trial.Passed(report.strict);
    if (!show) continue;
    for (const std::string& reason : Reasons(trial, report.strict))
      out += fmt::format("      {}{}\n", n > 1 || report.self_test ? TrialName(c, trial) + ": " : "",
                         llm::OneLine(reason, 600));
  }
  for (const TrialReport& trial : c.trials)
    for (const CheckResult& check : trial.checks)
      if (check.soft && !report.self_test && (!check.passed() || n == 1))
        out += fmt::format("      soft: {} {:.2f} (threshold {:.2f})\n", llm::OneLine(check.name, 100), check.score,
                           check.threshold);
  return out;
}

}  // namespace

bool TrialReport::Passed(bool strict) const {
  return error.empty() &&
         std::ranges::all_of(checks, [&](const CheckResult& c) { return c.passed() || (c.soft && !strict); });
}

int CaseReport::Passes(bool strict) const {
  return static_cast<int>(std::ranges::count_if(trials, [&](const TrialReport& t) { return t.Passed(strict); }));
}

bool CaseReport::Passed(bool strict) const {
  // 0.55 of 20 is a little more than 11 in binary.
  return !trials.empty() && Passes(strict) + 1e-9 >= pass_rate * static_cast<double>(trials.size());
}

std::vector<std::string> BlindChecks(const CaseReport& c) {
  std::vector<std::string> out;
  for (size_t i = 0; !c.trials.empty() && i < c.trials.front().checks.size(); ++i) {
    const CheckResult& check = c.trials.front().checks[i];
    const bool green = std::ranges::all_of(
        c.trials, [&](const TrialReport& t) { return i < t.checks.size() && t.checks[i].passed(); });
    if (green && check.demands && !check.soft) out.push_back(check.name);
  }
  return out;
}

bool AsItMustBe(const EvalReport& report, const CaseReport& c) {
  if (!report.self_test) return c.Passed(report.strict);
  if (report.strict && !BlindChecks(c).empty()) return false;
  // An error is no proof that the checks can fail.
  return !c.trials.empty() && std::ranges::all_of(c.trials, [&](const TrialReport& t) {
    return t.error.empty() && !t.Passed(report.strict);
  });
}

int EvalReport::ExitCode() const {
  const bool good = std::ranges::all_of(cases, [this](const CaseReport& c) { return AsItMustBe(*this, c); });
  return good && !interrupted ? 0 : 1;
}

json::object ToJson(const EvalReport& report) {
  json::array cases;
  for (const CaseReport& c : report.cases) {
    json::array trials;
    for (const TrialReport& trial : c.trials) trials.push_back(TrialJson(trial, report.strict));
    const int n = static_cast<int>(c.trials.size()), passes = c.Passes(report.strict);
    int64_t tokens = 0;
    for (const TrialReport& trial : c.trials) tokens += trial.outcome.usage.total();
    cases.push_back(json::object{{"id", c.id},
                                 {"name", c.name},
                                 {"tags", json::array(c.tags.begin(), c.tags.end())},
                                 {"ok", AsItMustBe(report, c)},
                                 {"passes", passes},
                                 {"trialCount", n},
                                 {"passAtK", PassAtK(n, passes, n)},
                                 {"passHatK", PassHatK(n, passes, n)},
                                 {"flaky", passes > 0 && passes < n},
                                 {"tokens", tokens},
                                 {"ms", Milliseconds(c)},
                                 {"trials", std::move(trials)}});
  }
  const Totals t = Sum(report);
  return {{"model", report.model},
          {"strict", report.strict},
          {"selfTest", report.self_test},
          {"interrupted", report.interrupted},
          {"ok", report.ExitCode() == 0},
          {"ms", report.ms},
          {"summary", json::object{{"cases", t.cases},
                                   {"ok", t.good},
                                   {"failed", t.cases - t.good},
                                   {"passAt1", t.pass_at_1},
                                   {"passAtK", t.pass_at_k},
                                   {"passHatK", t.pass_hat_k},
                                   {"flakeRate", static_cast<double>(t.flaky) / std::max(1, t.cases)},
                                   {"tokens", t.tokens}}},
          {"cases", std::move(cases)}};
}

std::string ToText(const EvalReport& report) {
  std::string out;
  for (const CaseReport& c : report.cases) out += CaseLines(report, c);
  const Totals t = Sum(report);
  size_t most = 0;
  for (const CaseReport& c : report.cases) most = std::max(most, c.trials.size());
  if (report.self_test) {
    out += fmt::format("\n{} cases sabotaged: {} went red, {} did not\n", t.cases, t.good, t.cases - t.good);
  } else {
    out += fmt::format("\n{} cases: {} passed, {} failed", t.cases, t.good, t.cases - t.good);
    if (most > 1)
      out += fmt::format(" · pass@1 {:.2f} · pass@k {:.2f} · pass^k {:.2f} · flake rate {:.0f}%", t.pass_at_1,
                         t.pass_at_k, t.pass_hat_k, 100.0 * t.flaky / std::max(1, t.cases));
    out += fmt::format(" · {} tokens · {:.1f} s\n", t.tokens, static_cast<double>(report.ms) / 1000);
  }
  if (report.interrupted) out += "interrupted: not every trial was run\n";
  return out;
}

std::string ToJunit(const EvalReport& report) {
  std::string body;
  int tests = 0, failures = 0, errors = 0;
  for (const CaseReport& c : report.cases) {
    for (const TrialReport& trial : c.trials) {
      ++tests;
      const bool green =
          report.self_test ? trial.error.empty() && !trial.Passed(report.strict) : trial.Passed(report.strict);
      body += fmt::format("    <testcase classname=\"sandbar.eval\" name=\"{}\" time=\"{:.3f}\"",
                          EscapeXml(TrialName(c, trial)), static_cast<double>(trial.outcome.ms) / 1000);
      if (green) {
        body += "/>\n";
        continue;
      }
      std::string reasons;
      for (const std::string& reason : Reasons(trial, report.strict)) reasons += reason + "\n";
      if (report.self_test && trial.error.empty()) reasons = "still green although sabotaged\n";
      const char* kind = trial.error.empty() ? "failure" : "error";
      (trial.error.empty() ? failures : errors) += 1;
      body += fmt::format(">\n      <{} message=\"{}\">{}</{}>\n    </testcase>\n", kind,
                          EscapeXml(llm::OneLine(reasons, 200)), EscapeXml(reasons), kind);
    }
  }
  const double seconds = static_cast<double>(report.ms) / 1000;
  const std::string counts =
      fmt::format("tests=\"{}\" failures=\"{}\" errors=\"{}\" time=\"{:.3f}\"", tests, failures, errors, seconds);
  return fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites {}>\n  <testsuite name=\"sandbar eval\" {}>\n{}  "
      "</testsuite>\n</testsuites>\n",
      counts, counts, body);
}

Result<std::string> Compare(const json::object& before, const EvalReport& after) {
  const json::value* list = before.if_contains("cases");
  if (list == nullptr || !list->is_array())
    return Fail(Code::kBadRequest, "that is no output of `sandbar eval --json`");
  struct Row {
    std::string a = "-", b = "-", change, tokens_a = "-", tokens_b = "-";
    double rate_a = -1, rate_b = -1;
  };
  std::map<std::string, Row> rows;
  for (const auto& item : list->as_array()) {
    if (!item.is_object()) continue;
    const json::object& c = item.as_object();
    Row& row = rows[Text(c, "id")];
    const int64_t n = Number(c, "trialCount"), passes = Number(c, "passes");
    row.a = fmt::format("{}/{}", passes, n);
    row.rate_a = n == 0 ? 0 : static_cast<double>(passes) / static_cast<double>(n);
    row.tokens_a = std::to_string(Number(c, "tokens"));
  }
  for (const CaseReport& c : after.cases) {
    Row& row = rows[c.id];
    const auto n = static_cast<double>(c.trials.size());
    row.b = fmt::format("{}/{}", c.Passes(after.strict), c.trials.size());
    row.rate_b = n == 0 ? 0 : c.Passes(after.strict) / n;
    int64_t tokens = 0;
    for (const TrialReport& trial : c.trials) tokens += trial.outcome.usage.total();
    row.tokens_b = std::to_string(tokens);
  }
  const std::string model_a = Text(before, "model"), model_b = after.model;
  std::string out = fmt::format("A: {}   B: {}\n{:<40} {:>8} {:>8} {:>8} {:>10} {:>10}\n",
                                model_a.empty() ? "each case's own" : llm::OneLine(model_a, 60),
                                model_b.empty() ? "each case's own" : llm::OneLine(model_b, 60), "CASE", "A", "B",
                                "CHANGE", "TOKENS A", "TOKENS B");
  int better = 0, worse = 0;
  for (auto& [id, row] : rows) {
    if (row.rate_a < 0)
      row.change = "new";
    else if (row.rate_b < 0)
      row.change = "gone";
    else if (row.rate_b > row.rate_a)
      row.change = fmt::format("+{:.0f}%", 100 * (row.rate_b - row.rate_a));
    else if (row.rate_b < row.rate_a)
      row.change = fmt::format("{:.0f}%", 100 * (row.rate_b - row.rate_a));
    better += row.rate_a >= 0 && row.rate_b > row.rate_a ? 1 : 0;
    worse += row.rate_b >= 0 && row.rate_b < row.rate_a ? 1 : 0;
    out += fmt::format("{:<40} {:>8} {:>8} {:>8} {:>10} {:>10}\n", llm::OneLine(id, 40), row.a, row.b, row.change,
                       row.tokens_a, row.tokens_b);
  }
  return out + fmt::format("{} better, {} worse\n", better, worse);
}

}  // namespace sandbar::evals
