#include "mcp/exec.h"

#include <signal.h>

#include <algorithm>

namespace sandbar::mcp {
namespace {

constexpr int64_t kTimeoutMs = 30'000;

void Append(std::string& to, std::string_view bytes, size_t cap, bool& cut) {
  const size_t n = std::min(bytes.size(), cap - to.size());
  to.append(bytes.substr(0, n));
  cut = cut || n < bytes.size();
}

}  // namespace

Task<Ran> RunQuietly(const ToolCall* call, std::string session, std::vector<std::string> argv, size_t cap) {
  sandbox::Commands* commands = call->connection->domain->commands;
  sandbox::CommandSpec spec;
  spec.command = argv.front();
  spec.args.assign(argv.begin() + 1, argv.end());
  spec.timeout_ms = kTimeoutMs;
  spec.env["LC_ALL"] = "C";
  auto started = co_await commands->Start(call->connection->scope, session, std::move(spec));
  if (!started) co_return std::unexpected(std::move(started).error());
  const std::string id = started->command.id;
  auto log = co_await commands->OpenLog(call->connection->scope, session, id);
  if (!log) co_return std::unexpected(std::move(log).error());
  Ran ran;
  while (true) {
    SB_CO_TRY(sandbox::LogChunk chunk, co_await (*log)->Next());
    if (chunk.bytes.empty() && chunk.gap == 0) break;
    ran.cut = ran.cut || chunk.gap > 0;
    Append(chunk.stream == 2 ? ran.err : ran.out, chunk.bytes, cap, ran.cut);
    if (ran.cut) break;
  }
  if (ran.cut) {
    auto killed = co_await commands->Kill(call->connection->scope, session, id, SIGKILL);
    if (!killed) co_return std::unexpected(std::move(killed).error());
    co_return ran;
  }
  auto ended = co_await commands->Wait(call->connection->scope, std::move(session), id);
  if (!ended) co_return std::unexpected(std::move(ended).error());
  if (!ended->exit_code) co_return Fail(Code::kStopped, "the sandbox stopped meanwhile");
  ran.exit_code = *ended->exit_code;
  co_return ran;
}

}  // namespace sandbar::mcp
