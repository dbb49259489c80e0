// `sandbar agent`: a thin front of llm/session.h.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>

#include "cli/commands.h"
#include "cli/output.h"
#include "cli/signals.h"
#include "llm/session.h"
#include "llm/transcript.h"
#include "wire/ndjson.h"

namespace sandbar::cli {
namespace {

std::string HostEnvironment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

// The last line: which end it was, and why.
void NoteVerdict(const llm::Outcome& outcome) {
  const std::string spent =
      fmt::format("{} step{}, {:.1f} s, {}+{} tokens", outcome.steps, outcome.steps == 1 ? "" : "s",
                  static_cast<double>(outcome.ms) / 1000, outcome.usage.input, outcome.usage.output);
  const std::string reason = llm::OneLine(outcome.reason, 1000);
  switch (outcome.status) {
    case llm::Status::kAnswered:
      return Note(Colour::kGreen, "answered", ": " + spent);
    case llm::Status::kFailed:
      return Note(Colour::kRed, "failed", ": " + reason + " (" + spent + ")");
    case llm::Status::kConfiguration:
      return Note(Colour::kRed, "configuration error", ": " + reason);
    case llm::Status::kLimit:
      return Note(Colour::kYellow, "limit hit", ": " + reason + " (" + spent + ")");
    case llm::Status::kInterrupted:
      return Note(Colour::kYellow, "interrupted", ": the task is not finished (" + spent + ")");
  }
}

Result<> Print(const llm::SessionDone& done, bool as_json) {
  if (as_json) {
    json::object report = llm::ToJson(done.outcome);
    report["sandbox"] = done.sandbox;
    report["files"] = json::array(done.files.begin(), done.files.end());
    return Out(wire::NdjsonLine(report));
  }
  if (done.outcome.status != llm::Status::kAnswered) return {};
  // A terminal acts on escape sequences, and the answer may come from anywhere; a file gets every byte.
  std::string answer = ::isatty(1) == 1 ? PrintableLines(done.outcome.answer) : done.outcome.answer;
  if (!answer.ends_with('\n')) answer += '\n';
  return WriteAll(1, answer);
}

}  // namespace

Task<int> Agent(ApiClient* api, const Options* options, llm::RunOptions asked) {
  auto ex = co_await asio::this_coro::executor;
  // From here on a signal ends the run in order: one that comes while the sandbox is being made is not lost.
  Signals signals(ex, {SIGINT, SIGTERM, SIGHUP});
  llm::SessionHooks hooks;
  hooks.stop = [&signals] { return signals.Wait(); };
  hooks.say = [](const std::string& line) { Remark(line + "\n"); };
  hooks.environment = HostEnvironment;
  const bool as_json = options->json;
  SB_CO_TRY(llm::SessionDone done, co_await llm::RunSession(api, std::move(asked), std::move(hooks)));
  auto printed = Print(done, as_json);
  for (const std::string& file : done.files) Note("downloaded " + llm::OneLine(file, 400));
  NoteVerdict(done.outcome);
  if (!printed) co_return std::unexpected(std::move(printed).error());
  co_return llm::ExitCode(done.outcome.status);
}

}  // namespace sandbar::cli
