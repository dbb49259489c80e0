#include "evals/case.h"

#include <re2/re2.h>

#include <algorithm>
#include <filesystem>

#include "base/duration.h"
#include "base/files.h"
#include "llm/box.h"
#include "llm/script.h"
#include "llm/yaml.h"

namespace sandbar::evals {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

constexpr size_t kMaxCases = 10'000;
constexpr int64_t kLargestTimeout = 1'000'000;  // the number before the unit

struct ToolCheckBody {
  std::string name;
  std::optional<int> times, min, max;
  std::optional<std::string> input;
};
BOOST_DESCRIBE_STRUCT(ToolCheckBody, (), (name, times, min, max, input))

void CheckPattern(wire::JsonIssues& issues, std::string_view key, const std::optional<std::string>& pattern) {
  if (pattern && !re2::RE2(*pattern, re2::RE2::Quiet).ok()) issues.Add(key, "is no regular expression (RE2)");
}

// A path or pattern of `outputs`: what is wrong with it, or nothing.
std::string OutputProblem(const std::string& path) {
  if (path.empty() || path.size() > 4096) return "must have 1 to 4096 characters";
  const std::string_view relative = std::string_view(path).substr(path.starts_with('/') ? 1 : 0);
  if (!llm::IsSafeRelative(relative.starts_with("./") ? relative.substr(2) : relative))
    return "must be the path of a file, such as out.txt or /tmp/out.txt, without \"..\" and control characters";
  return "";
}

bool IsCaseFile(const fs::path& path) {
  const std::string name = path.filename().string(), ending = path.extension().string();
  if (name.starts_with('_') || name.starts_with('.')) return false;
  if (name.ends_with(".script.yaml") || name.ends_with(".script.yml")) return false;
  return ending == ".yaml" || ending == ".yml" || ending == ".mjs";
}

bool IsSkippedDirectory(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.starts_with('_') || name.starts_with('.') || name == "node_modules";
}

}  // namespace

void Words::ReadJson(wire::JsonDecoder& decoder, const json::value& value) {
  if (value.is_array()) {
    decoder.Read(value, items);
  } else {
    decoder.Read(value, items.emplace_back());
  }
  if (items.empty()) decoder.Add("", "must not be empty");
  for (const std::string& word : items)
    if (word.empty()) decoder.Add("", "an empty text is part of every text");
}

void ToolCheck::ReadJson(wire::JsonDecoder& decoder, const json::value& value) {
  if (value.is_string()) {
    decoder.Read(value, name);
    return;
  }
  ToolCheckBody body;
  decoder.Read(value, body);
  CheckPattern(decoder, "input", body.input);
  name = body.name;
  times = body.times;
  min = body.min;
  max = body.max;
  input = body.input;
}

void FileCheck::Check(wire::JsonIssues& issues) const {
  CheckPattern(issues, "matches", matches);
}

void ServeSpec::Check(wire::JsonIssues& issues) const {
  issues.Range("port", std::optional<int>(port), 1, 65535);
  if (command.empty()) issues.Add("command", "must not be empty");
}

void EvalCheck::Check(wire::JsonIssues& issues) const {
  const int kinds = includes.has_value() + excludes.has_value() + matches.has_value() + called_tool.has_value() +
                    not_called_tool.has_value() + tool_order.has_value() + max_tool_calls.has_value() +
                    min_tool_calls.has_value() + max_steps.has_value() + no_failed_actions.has_value() +
                    file.has_value() + checker.has_value() + max_seconds.has_value() + max_tokens.has_value();
  if (kinds != 1) issues.Add("", "must have exactly one kind of check, such as `includes` or `checker`");
  CheckPattern(issues, "matches", matches);
  if (threshold && (*threshold < 0 || *threshold > 1)) issues.Add("threshold", "must be between 0 and 1");
  if (threshold && !soft && !(checker && checker->score))
    issues.Add("threshold", "belongs to a check with `soft: true` or `score: true`");
}

void EvalBody::Check(wire::JsonIssues& issues) const {
  issues.Range("trials", trials, 1, 1000);
  issues.Range("maxSteps", max_steps, 1, 10'000);
  if (pass_rate && (*pass_rate <= 0 || *pass_rate > 1)) issues.Add("passRate", "must be above 0 and at most 1");
  if (timeout && !ParseDuration(*timeout, kLargestTimeout))
    issues.Add("timeout", "is no duration; write 90s, 5m or 2h");
  for (const std::string& path : outputs.value_or(std::vector<std::string>()))
    if (std::string problem = OutputProblem(path); !problem.empty())
      issues.Add("outputs", "'" + path.substr(0, 100) + "' " + problem);
  const bool has_checker = std::ranges::any_of(checks, [](const EvalCheck& c) { return c.checker.has_value(); });
  if (has_checker && !outputs)
    issues.Add("outputs",
               "is required by a case with a `checker`: it names the files that the model leaves for the checker, such "
               "as [out.txt]; [] when the checker needs none");
  const bool can_fail = assert_ || std::ranges::any_of(checks, [](const EvalCheck& c) { return !c.soft; });
  if (!can_fail) issues.Add("checks", "needs at least one check that is not soft: this case could not fail");
  if (script.empty()) return;
  if (model) issues.Add("script", "and `model` exclude each other");
  json::array steps(script.begin(), script.end());
  if (auto parsed = llm::ParseSteps(steps); !parsed) issues.Add("script", parsed.error().message);
}

Result<std::vector<std::string>> FindCaseFiles(const std::string& path) {
  std::error_code ec;
  if (fs::is_regular_file(path, ec)) return std::vector<std::string>{path};
  if (!fs::is_directory(path, ec)) return Fail(Code::kBadRequest, path + " is neither a directory nor a case file");
  std::vector<std::string> files;
  auto it = fs::recursive_directory_iterator(path, ec);
  for (; !ec && it != fs::end(it) && files.size() < kMaxCases; it.increment(ec)) {
    if (it->is_directory() && IsSkippedDirectory(it->path())) {
      it.disable_recursion_pending();
    } else if (it->is_regular_file() && IsCaseFile(it->path())) {
      files.push_back(it->path().string());
    }
  }
  if (ec) return Fail(Code::kBadRequest, path + ": " + ec.message());
  std::ranges::sort(files);
  return files;
}

std::string CaseId(const std::string& root, const std::string& file) {
  std::error_code ec;
  fs::path path(file);
  if (fs::is_directory(root, ec))
    path = fs::path(file).lexically_relative(root);
  else
    path = path.filename();
  return path.replace_extension().string();
}

void DecodeCase(const json::value& value, EvalCase* out) {
  auto body = wire::DecodeValue<EvalBody>(value);
  if (!body) {
    out->broken = body.error().message;
    return;
  }
  out->body = std::move(*body);
  if (out->body.max_steps) out->limits.max_steps = *out->body.max_steps;
  if (out->body.max_tokens) out->limits.max_tokens = *out->body.max_tokens;
  if (out->body.timeout) out->limits.timeout_ms = *ParseDuration(*out->body.timeout, kLargestTimeout);
}

EvalCase ReadCase(const std::string& root, const std::string& file) {
  EvalCase out;
  out.id = CaseId(root, file);
  out.file = file;
  auto text = ReadFile(file, 8 << 20);
  if (!text) {
    out.broken = text.error().message;
    return out;
  }
  auto value = llm::ParseYaml(*text);
  if (!value) {
    out.broken = value.error().message;
  } else if (value->is_object() && value->as_object().contains("assert")) {
    out.broken = "`assert` is a function of .mjs cases; YAML cases have `checks`";
  } else {
    DecodeCase(*value, &out);
  }
  return out;
}

std::string BesideCase(const EvalCase& c, const std::string& path) {
  return (fs::path(c.file).parent_path() / path).string();
}

}  // namespace sandbar::evals
