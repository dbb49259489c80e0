// run_command and read_output: a command is started, watched for as long as a client waits, and left running under a
// handle (its id) when it takes longer.
#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <boost/json.hpp>

#include "async/cancelled.h"
#include "base/ids.h"
#include "mcp/code.h"
#include "mcp/open.h"
#include "mcp/output.h"
#include "wire/json_decode.h"

namespace sandbar::mcp {
namespace {

constexpr std::chrono::seconds kTermGrace{5};
constexpr std::chrono::seconds kKillGrace{10};
constexpr size_t kMaxDenials = 5;

struct RunArgs {
  std::string command;
  std::optional<std::string> cwd;
  std::map<std::string, std::string> env;
  std::optional<int64_t> timeout_ms;
  bool background = false;
  static constexpr wire::JsonAlias kJsonAliases[] = {{"cmd", "command"}, {"timeout_ms", "timeoutMs"}};
};
BOOST_DESCRIBE_STRUCT(RunArgs, (), (command, cwd, env, timeout_ms, background))

struct OutputArgs {
  std::string handle;
  std::optional<int64_t> wait_ms;
  std::optional<int64_t> after;
  bool kill = false;
  static constexpr wire::JsonAlias kJsonAliases[] = {{"wait_ms", "waitMs"}};
};
BOOST_DESCRIBE_STRUCT(OutputArgs, (), (handle, wait_ms, after, kill))

// A command's output while a client waits for it.
struct Watch {
  Output output{0};
  std::unique_ptr<sandbox::LogReader> log;
  store::Command command;
  bool ended = false;

  int64_t elapsed_ms() const { return command.duration_ms.value_or(NowMs() - command.started_at); }
};

Task<> TakeNext(Watch* watch) {
  SB_CO_TRY(sandbox::LogChunk chunk, co_await watch->log->Next());
  watch->ended = chunk.bytes.empty() && chunk.gap == 0;
  watch->output.Add(chunk);
  co_return Result<>{};
}

Task<> Follow(Watch* watch) {
  while (!watch->ended) {
    SB_CO_TRYV(co_await TakeNext(watch));
    SB_CO_TRYV(co_await CheckCancelled());
  }
  co_return Result<>{};
}

// What is there by now, without waiting for more.
Task<> Look(Watch* watch) {
  while (!watch->ended && !watch->log->caught_up()) {
    SB_CO_TRYV(co_await TakeNext(watch));
  }
  co_return Result<>{};
}

Task<> TellProgress(ToolCall* call, const Watch* watch) {
  if (call->progress == nullptr) co_return Result<>{};
  const int64_t ms = std::max<int64_t>(0, watch->elapsed_ms());
  std::string text = fmt::format("running · {} · {} bytes of output", Elapsed(ms), watch->output.position());
  co_return co_await call->progress->Report(static_cast<double>(ms) / 1000, std::move(text));
}

// In slices, so that a report is never under way when the wait ends: half a message would spoil the stream.
Task<> WatchFor(ToolCall* call, Watch* watch, std::chrono::milliseconds limit) {
  using namespace asio::experimental::awaitable_operators;
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!watch->ended) {
    const auto left = end - std::chrono::steady_clock::now();
    if (left <= left.zero()) co_return Result<>{};
    SB_CO_TRYV(co_await TellProgress(call, watch));
    const auto slice =
        std::min<std::chrono::nanoseconds>(left, std::chrono::milliseconds(call->connection->settings.progress_ms));
    auto first = co_await (Follow(watch) || Sleep(slice));
    SB_CO_TRYV(co_await CheckCancelled());
    if (first.index() == 0) co_return std::get<0>(std::move(first));
    SB_CO_TRYV(std::get<1>(std::move(first)));
  }
  co_return Result<>{};
}

// The log's end comes with the command's; its exit code is on record then.
Task<> TakeExit(ToolCall* call, Watch* watch) {
  std::string session = watch->command.session;
  std::string id = watch->command.id;
  auto ended =
      co_await call->connection->domain->commands->Wait(call->connection->scope, std::move(session), std::move(id));
  if (!ended) co_return std::unexpected(std::move(ended).error());
  if (!ended->exit_code) co_return Fail(Code::kStopped, "the sandbox stopped before the command ended");
  watch->command = *std::move(ended);
  co_return Result<>{};
}

// What the policy kept the command from reaching: to the program that tried it looks like something else.
Task<std::string> DeniedNotes(ToolCall* call, const Watch* watch) {
  std::string session = watch->command.session;
  auto view = co_await call->connection->domain->sessions->Network(call->connection->scope, std::move(session));
  if (!view) co_return "";
  std::string notes;
  size_t shown = 0;
  for (const egress::Denial& d : view->denials) {
    if (d.at_ms < watch->command.started_at || ++shown > kMaxDenials) continue;
    notes += fmt::format("\nnetwork: {} was denied ({})", CutText(d.target, 300), d.reason);
  }
  if (shown > kMaxDenials) notes += fmt::format("\nnetwork: and {} more were denied", shown - kMaxDenials);
  co_return notes;
}

std::string StatusLine(const Watch& watch) {
  const store::Command& command = watch.command;
  std::string line;
  if (command.exit_code)
    line = fmt::format("exit code {} · {}", *command.exit_code, Elapsed(watch.elapsed_ms()));
  else
    line = fmt::format("running · {} · handle {}", Elapsed(std::max<int64_t>(0, watch.elapsed_ms())), command.id);
  if (command.timed_out) line += " · timed out";
  if (command.oom_killed) line += " · killed: out of memory";
  return line;
}

Task<ToolResult> Report(ToolCall* call, Watch* watch, std::string note) {
  std::string text = StatusLine(*watch) + "\n";
  text += watch->output.empty() ? "(no output)" : watch->output.Render(kTextCap);
  if (watch->command.exit_code) {
    SB_CO_TRY(std::string denied, co_await DeniedNotes(call, watch));
    text += denied;
  } else {
    text += fmt::format("\nstill running; more with read_output {{\"handle\":\"{}\",\"after\":{}}}", watch->command.id,
                        watch->output.position());
  }
  if (!note.empty()) text += "\n" + note;
  co_return TextResult(text);
}

// A cancellation meanwhile would leave a command behind that nobody knows of: it waits until the id is known.
Task<Watch> Start(ToolCall* call, std::string session, sandbox::CommandSpec spec) {
  co_await asio::this_coro::reset_cancellation_state(asio::disable_cancellation());
  auto started = co_await call->connection->domain->commands->Start(call->connection->scope, session, std::move(spec));
  co_await asio::this_coro::reset_cancellation_state(asio::enable_terminal_cancellation());
  if (!started) co_return std::unexpected(std::move(started).error());
  Watch watch;
  watch.command = std::move(started->command);
  call->waited->session = watch.command.session;
  call->waited->command = watch.command.id;
  if (call->waited->abandoned) co_return Fail(Code::kCancelled, "cancelled");
  std::string id = watch.command.id;
  auto log =
      co_await call->connection->domain->commands->OpenLog(call->connection->scope, std::move(session), std::move(id));
  if (!log) co_return std::unexpected(std::move(log).error());
  watch.log = *std::move(log);
  co_return watch;
}

Task<> End(ToolCall* call, Watch* watch, int signal, std::chrono::milliseconds grace) {
  std::string session = watch->command.session;
  std::string id = watch->command.id;
  auto killed = co_await call->connection->domain->commands->Kill(call->connection->scope, std::move(session),
                                                                  std::move(id), signal);
  if (!killed) co_return std::unexpected(std::move(killed).error());
  co_return co_await WatchFor(call, watch, grace);
}

}  // namespace

Task<ToolResult> RunCommand(ToolCall* call) {
  SB_CO_TRY(RunArgs args, wire::DecodeValue<RunArgs>(call->arguments));
  SB_CO_TRY(Opened opened, co_await OpenSandbox(call));
  sandbox::CommandSpec spec;
  spec.command = "bash";
  spec.args = {"-c", std::move(args.command)};
  spec.cwd = std::move(args.cwd);
  spec.env = std::move(args.env);
  spec.timeout_ms = args.timeout_ms;
  std::string session = opened.session.id;
  SB_CO_TRY(Watch watch, co_await Start(call, std::move(session), std::move(spec)));
  if (!args.background) {
    const std::chrono::milliseconds limit(call->connection->settings.handle_after_ms);
    SB_CO_TRYV(co_await WatchFor(call, &watch, limit));
  }
  // From here on it is the handle's.
  *call->waited = {};
  if (watch.ended) {
    SB_CO_TRYV(co_await TakeExit(call, &watch));
  }
  co_return co_await Report(call, &watch, std::move(opened.note));
}

Task<ToolResult> ReadOutput(ToolCall* call) {
  SB_CO_TRY(OutputArgs args, wire::DecodeValue<OutputArgs>(call->arguments));
  if (args.kill) SB_CO_TRYV(sandbox::CheckRole(call->connection->scope.caller, sandbox::KeyRole::kOperator));
  SB_CO_TRY(Opened opened, co_await FindSandbox(call));
  const int64_t most = call->connection->settings.handle_after_ms;
  const std::chrono::milliseconds wait(std::clamp<int64_t>(args.wait_ms.value_or(most), 0, most));
  if (IsCellHandle(args.handle)) co_return co_await ReadCell(call, args.handle, wait, args.kill);
  Watch watch;
  watch.output = Output(static_cast<uint64_t>(std::max<int64_t>(0, args.after.value_or(0))));
  std::string session = opened.session.id;
  auto command = co_await call->connection->domain->commands->Get(call->connection->scope, session, args.handle);
  if (!command) co_return std::unexpected(std::move(command).error().Context("handle"));
  watch.command = *std::move(command);
  auto log =
      co_await call->connection->domain->commands->OpenLog(call->connection->scope, std::move(session), args.handle);
  if (!log) co_return std::unexpected(std::move(log).error());
  watch.log = *std::move(log);
  if (args.kill) {
    SB_CO_TRYV(co_await End(call, &watch, SIGTERM, kTermGrace));
    if (!watch.ended) {
      SB_CO_TRYV(co_await End(call, &watch, SIGKILL, kKillGrace));
    }
  } else if (wait.count() > 0) {
    SB_CO_TRYV(co_await WatchFor(call, &watch, wait));
  } else {
    SB_CO_TRYV(co_await Look(&watch));
  }
  if (watch.ended) {
    SB_CO_TRYV(co_await TakeExit(call, &watch));
  }
  std::string note;
  co_return co_await Report(call, &watch, std::move(note));
}

}  // namespace sandbar::mcp
