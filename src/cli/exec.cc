// `sandbar exec` and `sandbar attach`: commands in a sandbox that is there already.
#include <signal.h>

#include "cli/attached_command.h"
#include "cli/commands.h"
#include "cli/interrupt_relay.h"
#include "cli/output.h"
#include "cli/signals.h"
#include "wire/ndjson.h"
#include "wire/url.h"

namespace sandbar::cli {
namespace {

// What becomes of the command when we leave because of a signal.
Task<> NoteLeft(const InterruptRelay* relay, std::string name, bool kill) {
  const std::string quoted = ShellWord(name);
  const std::string id = relay->command->id;
  if (id.empty()) {
    Note(fmt::format("the command may go on in {}; look for it: sandbar logs {}", name, quoted));
    co_return Result<>{};
  }
  if (!kill) {
    Note(fmt::format("the command goes on in {}; its output: sandbar logs -f {} {}", name, quoted, id));
    co_return Result<>{};
  }
  // It was told before.
  int signal = relay->passed_on ? SIGKILL : SIGTERM;
  auto killed = co_await SendSignal(relay->api, relay->session, id, signal);
  Note(killed ? "the command was told to end" : "the command could not be ended: " + killed.error().message);
  co_return Result<>{};
}

Task<int> ExecAttached(ApiClient* api, const Options* options, std::string session, ExecCommand command) {
  using namespace asio::experimental::awaitable_operators;
  auto ex = co_await asio::this_coro::executor;
  const Streams streams = StreamsFor(command.io, !command.argv.empty());
  const CommandLine line{command.argv, command.env, command.cwd, command.sudo, command.timeout_ms};
  json::object body = CommandBody(line, streams);
  AttachedCommand::Settings settings{session, command.name, streams, options->json, true};
  AttachedCommand attached(ex, api, std::move(settings));
  CommandHandle handle;
  Signals signals(ex, {SIGINT, SIGTERM, SIGHUP});
  InterruptRelay relay{api, &signals, session, &handle};
  Task<int> work = attached.Start(std::move(body), &handle);
  Task<int> leaving = relay.WaitToLeave();
  auto first = co_await (std::move(work) || std::move(leaving));
  if (first.index() == 0) co_return std::get<0>(std::move(first));
  SB_CO_TRY(int number, std::get<1>(std::move(first)));
  co_await NoteLeft(&relay, command.name, command.kill);
  co_return 128 + number;
}

Task<int> ExecDetached(ApiClient* api, const Options* options, std::string session, ExecCommand command) {
  // Nothing is sent from here; -i and -t are for who attaches later.
  const Streams streams{command.io.interactive || command.io.terminal, command.io.terminal};
  const CommandLine line{command.argv, command.env, command.cwd, command.sudo, command.timeout_ms};
  json::object body = CommandBody(line, streams);
  body["detached"] = true;
  json::value detached = std::move(body);
  const std::string path = "/x/v1/sessions/" + wire::EncodeComponent(session) + "/commands";
  SB_CO_TRY(json::object got, co_await api->Call("POST", path, std::move(detached)));
  std::string text = Text(Object(got, "command"), "id") + "\n";
  if (options->json) text = wire::NdjsonLine(got);
  SB_CO_TRYV(Out(text));
  co_return 0;
}

bool HasTerminal(const json::object& command) {
  const json::value* terminal = command.if_contains("terminal");
  return terminal != nullptr && terminal->is_bool() && terminal->as_bool();
}

// The newest that runs; one with a terminal rather than one without.
Task<std::string> NewestRunning(ApiClient* api, std::string name, std::string session) {
  SB_CO_TRY(json::object got, co_await api->Call("GET", SessionPath(session) + "/cmd", std::nullopt));
  const json::object* best = nullptr;
  for (const auto& item : Array(got, "commands")) {
    const json::object& c = item.as_object();
    if (ExitCodeIn(c)) continue;
    const auto rank = [](const json::object& o) { return std::pair(HasTerminal(o), Number(o, "startedAt")); };
    if (best == nullptr || rank(c) > rank(*best)) best = &c;
  }
  if (best == nullptr)
    co_return FailWithFix(Code::kNotFound, "no command runs in " + name, "sandbar sh " + ShellWord(name));
  co_return Text(*best, "id");
}

}  // namespace

Task<int> Exec(ApiClient* api, const Options* options, ExecCommand command) {
  SB_CO_TRY(std::string session, co_await SessionOf(api, command.name, true));
  if (command.detach) co_return co_await ExecDetached(api, options, std::move(session), std::move(command));
  co_return co_await ExecAttached(api, options, std::move(session), std::move(command));
}

Task<int> Attach(ApiClient* api, const Options* options, AttachCommand command) {
  using namespace asio::experimental::awaitable_operators;
  auto ex = co_await asio::this_coro::executor;
  SB_CO_TRY(std::string session, co_await SessionOf(api, command.name));
  CommandHandle handle{command.command};
  if (handle.id.empty()) {
    SB_CO_TRY(handle.id, co_await NewestRunning(api, command.name, session));
  }
  const Streams streams{command.io.interactive && IsReadable(0), false};
  AttachedCommand::Settings settings{session, command.name, streams, options->json, true, command.io.no_input};
  AttachedCommand attached(ex, api, std::move(settings));
  Signals signals(ex, {SIGINT, SIGTERM, SIGHUP});
  InterruptRelay relay{api, &signals, session, &handle};
  Task<int> work = attached.Join(handle.id);
  Task<int> leaving = relay.WaitToLeave();
  auto first = co_await (std::move(work) || std::move(leaving));
  if (first.index() == 0) co_return std::get<0>(std::move(first));
  SB_CO_TRY(int number, std::get<1>(std::move(first)));
  co_await NoteLeft(&relay, command.name, false);
  co_return 128 + number;
}

}  // namespace sandbar::cli
