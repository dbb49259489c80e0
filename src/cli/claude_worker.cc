// `sandbar claude-worker`: a thin front of llm/claude_worker.h.
#include "llm/claude_worker.h"

#include <signal.h>

#include <cstdlib>

#include "cli/commands.h"
#include "cli/output.h"
#include "cli/signals.h"
#include "wire/url.h"

namespace sandbar::cli {
namespace {

std::string FromHost(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

}  // namespace

Task<int> ClaudeWorker(ApiClient* api, llm::ClaudeWorkerOptions options) {
  llm::ClaudeWorkerHooks hooks;
  hooks.key = FromHost("ANTHROPIC_ENVIRONMENT_KEY");
  hooks.url = FromHost("ANTHROPIC_BASE_URL");
  if (hooks.url.empty()) hooks.url = "https://api.anthropic.com";
  while (hooks.url.ends_with('/')) hooks.url.pop_back();
  if (options.environment.empty()) options.environment = FromHost("ANTHROPIC_ENVIRONMENT_ID");
  auto url = wire::ParseUrl(hooks.url);
  std::string wrong;
  if (hooks.key.empty()) wrong = "no key\n  fix: export ANTHROPIC_ENVIRONMENT_KEY=…";
  if (options.environment.empty()) wrong = "no environment\n  fix: --environment ID, or ANTHROPIC_ENVIRONMENT_ID";
  if (!url) wrong = "ANTHROPIC_BASE_URL '" + hooks.url + "': " + url.error().message;
  if (!wrong.empty()) {
    Note("configuration error: " + wrong);
    co_return 2;
  }
  auto ex = co_await asio::this_coro::executor;
  Signals signals(ex, {SIGINT, SIGTERM, SIGHUP});
  hooks.stop = [&signals] { return signals.Wait(); };
  hooks.say = [](const std::string& line) { Note(line); };
  Note("serving environment " + options.environment + " of " + hooks.url);
  SB_CO_TRY(int served, co_await llm::RunClaudeWorker(api, std::move(options), std::move(hooks)));
  Note("served " + std::to_string(served) + (served == 1 ? " session" : " sessions"));
  co_return 0;
}

}  // namespace sandbar::cli
