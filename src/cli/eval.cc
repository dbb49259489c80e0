// `sandbar eval`: a thin front of evals/run.h.
#include <fmt/format.h>
#include <signal.h>

#include <boost/asio/io_context.hpp>
#include <cstdlib>

#include "base/files.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/signals.h"
#include "evals/run.h"
#include "llm/transcript.h"
#include "llm/yaml.h"
#include "wire/json_parse.h"
#include "wire/ndjson.h"

namespace sandbar::cli {
namespace {

// The earlier run, read before anything runs: a wrong name must not cost a whole run.
Result<json::object> ReadBefore(const std::string& path) {
  SB_TRY(std::string text, ReadFile(path));
  wire::JsonLimits limits;
  limits.bytes = 256 << 20;
  auto value = wire::ParseJson(text, limits);
  if (!value || !value->is_object() || !value->as_object().contains("cases"))
    return Fail(Code::kBadRequest, path + " is no output of `sandbar eval --json`");
  return std::move(value->as_object());
}

Result<> Report(const evals::EvalReport& report, const llm::EvalOptions& asked, const json::object& before,
                bool as_json) {
  if (!asked.junit.empty()) SB_TRYV(llm::WriteFile(asked.junit, evals::ToJunit(report)));
  std::string text = as_json ? wire::NdjsonLine(evals::ToJson(report)) : evals::ToText(report);
  if (!asked.compare.empty()) {
    SB_TRY(std::string table, evals::Compare(before, report));
    // With --json stdout is one object; the table is for people.
    if (as_json)
      Remark(table);
    else
      text += "\n" + table;
  }
  return Out(text);
}

std::string HostEnvironment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

}  // namespace

Result<EvalPlan> PlanEval(const llm::EvalOptions& asked) {
  EvalPlan plan;
  if (!asked.model.empty()) {
    asio::io_context io(1);
    llm::ModelOptions probe{HostEnvironment};
    SB_TRYV(llm::MakeModel(io.get_executor(), asked.model, probe));
  }
  if (!asked.compare.empty()) {
    SB_TRY(plan.before, ReadBefore(asked.compare));
  }
  evals::NodeRunner node{FindEvalRunner(), {}};
  SB_TRY(plan.cases, evals::FindCases(asked, node));
  return plan;
}

Result<> ListCases(const std::vector<evals::EvalCase>& cases, bool as_json) {
  json::array items;
  std::vector<std::vector<std::string>> rows{{"CASE", "TAGS", "NAME"}};
  for (const evals::EvalCase& c : cases) {
    std::string tags;
    for (const std::string& tag : c.body.tags) tags += (tags.empty() ? "" : ",") + tag;
    rows.push_back(
        {c.id, tags, c.broken.empty() ? c.body.name.value_or("") : "BROKEN: " + llm::OneLine(c.broken, 200)});
    json::object item{{"id", c.id}, {"file", c.file}, {"tags", json::array(c.body.tags.begin(), c.body.tags.end())}};
    if (!c.broken.empty()) item["broken"] = c.broken;
    items.push_back(std::move(item));
  }
  return Out(as_json ? wire::NdjsonLine(json::object{{"cases", std::move(items)}}) : Table(rows));
}

Task<int> Eval(ApiClient* api, const Options* options, llm::EvalOptions asked, EvalPlan plan) {
  auto ex = co_await asio::this_coro::executor;
  Signals signals(ex, {SIGINT, SIGTERM, SIGHUP});
  evals::EvalHooks hooks;
  hooks.stop = [&signals] { return signals.Wait(); };
  hooks.say = [](const std::string& line) { Note(line); };
  hooks.environment = HostEnvironment;
  hooks.node.runner = FindEvalRunner();
  hooks.node.environment = {{"SANDBAR_URL", api->server().url}, {"SANDBAR_TOKEN", api->server().token}};
  evals::EvalRunner runner(ex, api, asked, std::move(hooks));
  SB_CO_TRY(evals::EvalReport report, co_await runner.Run(std::move(plan.cases)));
  SB_CO_TRYV(Report(report, asked, plan.before, options->json));
  const int code = report.interrupted ? kExitInterrupted : report.ExitCode();
  Note(code == 0 ? Colour::kGreen : Colour::kRed, code == 0 ? "ok" : "failed", "");
  co_return code;
}

}  // namespace sandbar::cli
