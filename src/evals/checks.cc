#include "evals/checks.h"

#include <fmt/format.h>
#include <re2/re2.h>

#include <algorithm>
#include <charconv>

#include "llm/transcript.h"
#include "wire/ndjson.h"

namespace sandbar::evals {
namespace {

bool Matches(const std::string& pattern, const std::string& text) {
  return re2::RE2::PartialMatch(text, re2::RE2(pattern, re2::RE2::Quiet));
}

void Verdict(CheckResult* out, bool good, std::string why) {
  out->score = good ? 1 : 0;
  if (!good) out->message = std::move(why);
}

// The share of the words that are (or are not) in the text.
void JudgeWords(const Words& words, const std::string& text, bool wanted, CheckResult* out) {
  size_t good = 0;
  std::string bad;
  for (const std::string& word : words.items) {
    if (text.contains(word) == wanted) {
      ++good;
    } else {
      bad += (bad.empty() ? "'" : ", '") + word + "'";
    }
  }
  out->score = static_cast<double>(good) / static_cast<double>(words.items.size());
  if (!bad.empty()) out->message = fmt::format("{} {} in: {}", bad, wanted ? "not" : "is", llm::OneLine(text, 200));
}

int Count(const ToolCheck& check, const llm::Outcome& outcome) {
  return static_cast<int>(std::ranges::count_if(outcome.calls, [&](const llm::CalledTool& call) {
    return llm::ToolName(call.name) == llm::ToolName(check.name) &&
           (!check.input || Matches(*check.input, wire::ToAsciiJson(call.input)));
  }));
}

void JudgeCalled(const ToolCheck& check, const llm::Outcome& outcome, CheckResult* out) {
  const int n = Count(check, outcome);
  const int low = check.times.value_or(check.min.value_or(1));
  const int high = check.times.value_or(check.max.value_or(INT32_MAX));
  Verdict(out, n >= low && n <= high, fmt::format("{} was called {} times", check.name, n));
}

void JudgeOrder(const std::vector<std::string>& order, const llm::Outcome& outcome, CheckResult* out) {
  size_t next = 0;
  for (const llm::CalledTool& call : outcome.calls)
    if (next < order.size() && llm::ToolName(call.name) == llm::ToolName(order[next])) ++next;
  std::string called;
  for (const llm::CalledTool& call : outcome.calls) called += (called.empty() ? "" : ", ") + call.name;
  Verdict(out, next == order.size(), "called were: " + llm::OneLine(called, 200));
}

void JudgeNoFailures(const llm::Outcome& outcome, CheckResult* out) {
  out->score = 1;
  for (const llm::CalledTool& call : outcome.calls)
    if (call.is_error || call.exit_code.value_or(0) != 0)
      Verdict(out, false, fmt::format("{} failed: {}", call.name, llm::OneLine(wire::ToAsciiJson(call.input), 120)));
}

std::string LastLine(std::string_view text) {
  while (text.ends_with('\n') || text.ends_with('\r')) text.remove_suffix(1);
  const size_t at = text.rfind('\n');
  return std::string(at == std::string_view::npos ? text : text.substr(at + 1));
}

void JudgeScore(const llm::Ran& ran, CheckResult* out) {
  const std::string line = LastLine(ran.out);
  double score = 0;
  auto [end, ec] = std::from_chars(line.data(), line.data() + line.size(), score);
  const bool good = ec == std::errc() && end == line.data() + line.size() && score >= 0 && score <= 1;
  if (!good) return Verdict(out, false, "the checker's last line is no number from 0 to 1: " + llm::OneLine(line, 100));
  out->score = score;
  if (score < 1) out->message = fmt::format("score {}", score);
}

}  // namespace

std::string CheckName(const EvalCheck& c) {
  if (c.name) return *c.name;
  auto list = [](const std::vector<std::string>& items) {
    std::string out;
    for (const std::string& item : items) out += (out.empty() ? "" : ", ") + llm::OneLine(item, 40);
    return out;
  };
  if (c.includes) return "includes " + list(c.includes->items);
  if (c.excludes) return "excludes " + list(c.excludes->items);
  if (c.matches) return "matches " + llm::OneLine(*c.matches, 60);
  if (c.called_tool) return "calledTool " + c.called_tool->name;
  if (c.not_called_tool) return "notCalledTool " + c.not_called_tool->name;
  if (c.tool_order) return "toolOrder " + list(*c.tool_order);
  if (c.max_tool_calls) return fmt::format("maxToolCalls {}", *c.max_tool_calls);
  if (c.min_tool_calls) return fmt::format("minToolCalls {}", *c.min_tool_calls);
  if (c.max_steps) return fmt::format("maxSteps {}", *c.max_steps);
  if (c.no_failed_actions) return "noFailedActions";
  if (c.file) return "file " + llm::OneLine(c.file->path, 60);
  if (c.checker) return "checker " + llm::OneLine(c.checker->command, 60);
  if (c.max_seconds) return fmt::format("maxSeconds {}", *c.max_seconds);
  return fmt::format("maxTokens {}", c.max_tokens.value_or(0));
}

bool DemandsWork(const EvalCheck& c) {
  const bool forbids = c.excludes || c.not_called_tool || c.max_tool_calls || c.max_steps || c.no_failed_actions ||
                       c.max_seconds || c.max_tokens || (c.file && !c.file->exists.value_or(true));
  return !forbids;
}

bool JudgeOutcome(const EvalCheck& check, const llm::Outcome& outcome, CheckResult* out) {
  const int calls = static_cast<int>(outcome.calls.size());
  if (check.includes) {
    JudgeWords(*check.includes, outcome.answer, true, out);
  } else if (check.excludes) {
    JudgeWords(*check.excludes, outcome.answer, false, out);
  } else if (check.matches) {
    Verdict(out, Matches(*check.matches, outcome.answer), "the answer is: " + llm::OneLine(outcome.answer, 200));
  } else if (check.called_tool) {
    JudgeCalled(*check.called_tool, outcome, out);
  } else if (check.not_called_tool) {
    const int n = Count(*check.not_called_tool, outcome);
    Verdict(out, n == 0, fmt::format("{} was called {} times", check.not_called_tool->name, n));
  } else if (check.tool_order) {
    JudgeOrder(*check.tool_order, outcome, out);
  } else if (check.max_tool_calls) {
    Verdict(out, calls <= *check.max_tool_calls, fmt::format("{} tool calls", calls));
  } else if (check.min_tool_calls) {
    Verdict(out, calls >= *check.min_tool_calls, fmt::format("{} tool calls", calls));
  } else if (check.max_steps) {
    Verdict(out, outcome.steps <= *check.max_steps, fmt::format("{} steps", outcome.steps));
  } else if (check.no_failed_actions) {
    if (*check.no_failed_actions)
      JudgeNoFailures(outcome, out);
    else
      out->score = 1;
  } else if (check.max_seconds) {
    Verdict(out, outcome.ms <= *check.max_seconds * 1000, fmt::format("{} s", outcome.ms / 1000));
  } else if (check.max_tokens) {
    Verdict(out, outcome.usage.total() <= *check.max_tokens, fmt::format("{} tokens", outcome.usage.total()));
  } else {
    return false;
  }
  return true;
}

Result<> JudgeText(const FileCheck& check, const Result<std::string>& text, CheckResult* out) {
  const bool gone = !text && (text.error().code == Code::kNotFound || text.error().code == Code::kBadRequest ||
                              text.error().code == Code::kFileError);
  if (!text && !gone) return std::unexpected(text.error());
  if (!check.exists.value_or(true)) {
    Verdict(out, gone, check.path + " exists");
  } else if (gone) {
    Verdict(out, false, check.path + ": " + text.error().message);
  } else {
    out->score = 1;
    if (check.includes) JudgeWords(*check.includes, *text, true, out);
    if (check.equals && *text != *check.equals)
      Verdict(out, false, check.path + " has other content: " + llm::OneLine(*text, 200));
    if (check.matches && !Matches(*check.matches, *text))
      Verdict(out, false, check.path + " does not match: " + llm::OneLine(*text, 200));
  }
  return {};
}

void JudgeRan(const CheckerCheck& check, const llm::Ran& ran, CheckResult* out) {
  if (ran.exit_code != 0) {
    const std::string said = ran.err.empty() ? ran.out : ran.err;
    Verdict(out, false, fmt::format("exit code {}: {}", ran.exit_code, llm::OneLine(said, 400)));
  } else if (check.score) {
    JudgeScore(ran, out);
  } else {
    out->score = 1;
  }
}

}  // namespace sandbar::evals
