#include "cli/cli.h"

#include <signal.h>

#include <boost/asio/io_context.hpp>
#include <optional>

#include "assets/assets.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/server_process.h"
#include "cli/version.h"
#include "wire/ndjson.h"

namespace sandbar::cli {
namespace {

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

// Runs one task on a loop of its own and returns what it returned.
template <class T>
Result<T> Await(asio::io_context* io, Task<T> task) {
  std::optional<Result<T>> out;
  asio::co_spawn(*io, std::move(task), [&out](std::exception_ptr e, Result<T> r) {
    if (e) SB_BUG("exception escaped a command");
    out = e ? Result<T>(Fail(Code::kInternal, "internal error")) : std::move(r);
  });
  io->run();
  io->restart();
  if (!out) return Fail(Code::kInternal, "the command did not finish");
  return std::move(*out);
}

int ExitCodeOf(const Options& options, const Error& error, bool runs_command) {
  if (error.code == Code::kClosed && error.message.starts_with("the reader")) return 141;
  Complain(error, options.json);
  if (error.code == Code::kExecutableNotFound) return kExitNotFound;
  if (error.code == Code::kForbidden && error.message.find("needs root") != std::string::npos) return 2;
  return runs_command ? kExitOurs : 1;
}

int Finish(const Options& options, const Result<int>& result, bool runs_command) {
  return result ? *result : ExitCodeOf(options, result.error(), runs_command);
}

using ClientTask = std::function<Task<int>(ApiClient*)>;

int WithServer(const Options& options, bool runs_command, const ClientTask& task) {
  auto server = FindServer(options);
  if (!server) return ExitCodeOf(options, server.error(), runs_command);
  asio::io_context io(1);
  ApiClient api(io.get_executor(), std::move(*server));
  return Finish(options, Await(&io, task(&api)), runs_command);
}

bool Answers(const ServerRef& server) {
  asio::io_context io(1);
  ApiClient api(io.get_executor(), server);
  auto healthy = Await(&io, api.Healthy());
  return healthy && *healthy;
}

// Uses the server that is there, else one that lives just for this command. `staying`: what needs one that stays.
int Somewhere(const Options& options, bool runs_command, const std::string& staying, const ClientTask& task) {
  auto found = FindServer(options);
  StartedServer embedded;
  ServerRef server;
  const int wrong_settings = runs_command ? kExitOurs : 2;
  if (found && (Answers(*found) || (std::getenv("SANDBAR_URL") != nullptr && !options.data_given))) {
    server = *found;
  } else if (!found && found.error().code == Code::kForbidden) {
    Complain(found.error(), options.json);
    return wrong_settings;
  } else if (!staying.empty()) {
    auto error =
        FailWithFix(Code::kUnavailable, staying + " needs a server that stays, and none is running for " + options.data,
                    "./sandbar up   # then the same command again");
    Complain(error.error(), options.json);
    return wrong_settings;
  } else {
    auto started = StartEmbedded(options);
    if (!started) return ExitCodeOf(options, started.error(), runs_command);
    embedded = std::move(*started);
    server = embedded.server;
  }
  int code = 0;
  {
    asio::io_context io(1);
    ApiClient api(io.get_executor(), std::move(server));
    code = Finish(options, Await(&io, task(&api)), runs_command);
  }
  StopEmbedded(&embedded);
  return code;
}

// Which option of `run` needs a server that outlives it; empty: none.
std::string StaysFor(const RunCommand& command) {
  if (command.keep) return "--keep";
  if (command.persistent) return "--persistent";
  return command.from ? "--from" : "";
}

// How sandboxes of this server are isolated; empty when it does not say.
json::object InfoOf(const ServerRef& server) {
  asio::io_context io(1);
  ApiClient api(io.get_executor(), server);
  auto info = Await(&io, api.Call("GET", "/x/v1/info", std::nullopt));
  return info ? *std::move(info) : json::object();
}

int EvalSomewhere(const Options& options, const EvalCommand& command) {
  auto plan = PlanEval(command.options);
  if (!plan) {
    Complain(plan.error(), options.json);
    return 2;
  }
  if (command.options.list) return ListCases(plan->cases, options.json) ? 0 : 141;
  const Options* o = &options;
  return Somewhere(options, false, "",
                   [o, &command, &plan](ApiClient* api) { return Eval(api, o, command.options, std::move(*plan)); });
}

int DoctorWithServer(const Options& options, const DoctorCommand& command) {
  ServerProbes probes;
  auto server = FindServer(options);
  if (server && Answers(*server)) {
    asio::io_context io(1);
    ApiClient api(io.get_executor(), std::move(*server));
    auto tried = Await(&io, ProbeEngines(&api));
    if (!tried) Note("the engines were not tried: " + tried.error().message);
    if (tried) probes.engines = *std::move(tried);
    auto previews = Await(&io, ProbePreviews(&api));
    if (previews) probes.previews = *std::move(previews);
  }
  return Doctor(options, command, probes);
}

int Up(const Options& options, const UpCommand& command) {
  // Always the server of this machine, whatever SANDBAR_URL says.
  Options local = options;
  local.data_given = true;
  auto found = FindServer(local);
  std::string url;
  if (found && Answers(*found)) {
    url = found->url;
    Note("already running at " + url);
  } else {
    auto started = StartBackground(options, command.serve);
    if (!started) return ExitCodeOf(options, started.error(), false);
    url = started->server.url;
    Note("running at " + url + ", data in " + options.data + ", log in " + started->log);
  }
  std::string data = options.data == kDefaultData ? "" : " --data " + ShellQuote(options.data);
  if (!found) found = FindServer(local);
  const json::object info = found ? InfoOf(*found) : json::object();
  const int64_t level = Number(info, "isolationClass");
  if (options.json) {
    json::object report{{"url", url}, {"data", options.data}};
    if (level != 0) report["isolation"] = json::object{{"engine", Text(info, "engine")}, {"class", level}};
    return Out(wire::NdjsonLine(report)) ? 0 : 141;
  }
  const std::string engine = Text(info, "engine");
  if (level != 0) Note(fmt::format("isolation: class {} ({}, {})", level, engine, Boundary(engine)));
  Note("point the Vercel SDK at it:  eval \"$(./sandbar env" + data + ")\"");
  Note("stop it with everything in it:  ./sandbar down" + data);
  return 0;
}

int Down(const Options& options, const Hooks& hooks) {
  auto stopped = hooks.shut_down(options.data);
  if (!stopped) return ExitCodeOf(options, stopped.error(), false);
  if (options.json) return Out(*stopped ? "{\"stopped\":true}\n" : "{\"stopped\":false}\n") ? 0 : 141;
  Note(*stopped ? "stopped" : "nothing was running for " + options.data);
  return 0;
}

int Token(const Options& options) {
  auto token = ReadSmallFile(options.data + "/token");
  if (!token) {
    bool denied = token.error().sys_errno == EACCES;
    auto error = FailWithFix(Code::kNotFound, denied ? "this user cannot read " + options.data : token.error().message,
                             denied ? "sudo ./sandbar token" : "sudo ./sandbar up   # makes it at the first start");
    return ExitCodeOf(options, error.error(), false);
  }
  while (token->ends_with('\n')) token->pop_back();
  std::string line = *token + "\n";
  if (options.json) {
    json::object report{{"token", *token}};
    line = wire::NdjsonLine(report);
  }
  return Out(line) ? 0 : 141;
}

int EnvSomewhere(const Options& options, const EnvCommand& command, const Hooks& hooks) {
  auto token = hooks.mint_jwt(options.data);
  // Without the key of a local server, the server itself writes the lines (and serves the preload to download).
  if (!token && std::getenv("SANDBAR_URL") != nullptr && !options.data_given)
    return WithServer(options, !command.argv.empty(),
                      [o = &options, &command](ApiClient* api) { return RemoteEnv(api, o, command); });
  auto done = LocalEnv(options, command, std::move(token));
  return Finish(options, done, !command.argv.empty());
}

// The guide that the server has at /llms.txt, with the address of the one that would be used.
int Skill(const Options& options) {
  auto server = FindServer(options);
  std::string url = server ? server->url : "http://" + std::string(kDefaultListen);
  std::string text = assets::Guide(url);
  if (options.json) {
    json::object report{{"skill", text}};
    text = wire::NdjsonLine(report);
  }
  return Out(text) ? 0 : 141;
}

int Version(const Options& options) {
  json::object report{{"version", kVersion}, {"compiler", __VERSION__}};
  std::string line = fmt::format("sandbar {}\n", kVersion);
  if (options.json) line = wire::NdjsonLine(report);
  return Out(line) ? 0 : 141;
}

}  // namespace

int Main(const Options& options, const Hooks& hooks) {
  // A closed pipe is an error value for us; a signal would skip the clean-up of sandboxes.
  ::signal(SIGPIPE, SIG_IGN);
  const Options* o = &options;
  return std::visit(
      Overloaded{
          [&](const ServeCommand& c) { return hooks.serve(options, c); },
          [&](const UpCommand& c) { return Up(options, c); },
          [&](const DownCommand&) { return Down(options, hooks); },
          [&](const RunCommand& c) {
            return Somewhere(options, true, StaysFor(c), [o, &c](ApiClient* a) { return Run(a, o, c); });
          },
          [&](const CodeCommand& c) {
            const ClientTask task = [o, &c](ApiClient* a) { return RunCode(a, o, c); };
            return c.name.empty() ? Somewhere(options, true, "", task) : WithServer(options, true, task);
          },
          [&](const AgentCommand& c) {
            return Somewhere(options, false,
                             c.options.sandbox ? "--sandbox"
                             : c.options.from  ? "--from"
                                               : "",
                             [o, &c](ApiClient* a) { return Agent(a, o, c.options); });
          },
          [&](const EvalCommand& c) { return EvalSomewhere(options, c); },
          [&](const ClaudeWorkerCommand& c) {
            return WithServer(options, false, [&c](ApiClient* a) { return ClaudeWorker(a, c.options); });
          },
          [&](const ExecCommand& c) {
            return WithServer(options, true, [o, &c](ApiClient* a) { return Exec(a, o, c); });
          },
          [&](const LogsCommand& c) {
            return WithServer(options, false, [o, &c](ApiClient* a) { return Logs(a, o, c); });
          },
          [&](const PsCommand& c) { return WithServer(options, false, [o, &c](ApiClient* a) { return Ps(a, o, c); }); },
          [&](const StopCommand& c) {
            return WithServer(options, false, [o, &c](ApiClient* a) { return Stop(a, o, c); });
          },
          [&](const RmCommand& c) { return WithServer(options, false, [o, &c](ApiClient* a) { return Rm(a, o, c); }); },
          [&](const CpCommand& c) {
            return WithServer(options, false, [o, &c](ApiClient* a) { return Copy(a, o, c); });
          },
          [&](const DiffCommand& c) {
            return WithServer(options, false, [o, &c](ApiClient* a) { return Diff(a, o, c); });
          },
          [&](const PromoteCommand& c) {
            return WithServer(options, false, [o, &c](ApiClient* a) { return Promote(a, o, c); });
          },
          [&](const ExportCommand& c) {
            return WithServer(options, false, [o, &c](ApiClient* a) { return Export(a, o, c); });
          },
          [&](const ImportCommand& c) {
            return WithServer(options, false, [o, &c](ApiClient* a) { return Import(a, o, c); });
          },
          [&](const RaceCommand& c) {
            return WithServer(options, false, [o, &c](ApiClient* a) { return Race(a, o, c); });
          },
          [&](const NetCommand& c) {
            return WithServer(options, false, [o, &c](ApiClient* a) { return Net(a, o, c); });
          },
          [&](const InspectCommand& c) {
            return WithServer(options, false, [o, &c](ApiClient* a) { return Inspect(a, o, c); });
          },
          [&](const SnapshotCommand& c) {
            return WithServer(options, false, [o, &c](ApiClient* a) { return Snapshot(a, o, c); });
          },
          [&](const ForkCommand& c) {
            return WithServer(options, false, [o, &c](ApiClient* a) { return Fork(a, o, c); });
          },
          [&](const PauseCommand& c) {
            return WithServer(options, false, [o, &c](ApiClient* a) { return Pause(a, o, c); });
          },
          [&](const ResumeCommand& c) {
            return WithServer(options, false, [o, &c](ApiClient* a) { return Resume(a, o, c); });
          },
          [&](const UsageCommand&) { return WithServer(options, false, [o](ApiClient* a) { return Usage(a, o); }); },
          [&](const ForwardCommand& c) {
            return WithServer(options, false, [o, &c](ApiClient* a) { return Forward(a, o, c); });
          },
          [&](const McpCommand& c) { return Somewhere(options, true, "", [&c](ApiClient* a) { return Mcp(a, c); }); },
          [&](const TokenCommand&) { return Token(options); },
          [&](const EnvCommand& c) { return EnvSomewhere(options, c, hooks); },
          [&](const ImageCommand& c) { return hooks.image(options, c); },
          [&](const KernelCommand& c) { return Kernel(options, c); },
          [&](const SkillCommand&) { return Skill(options); },
          [&](const VersionCommand&) { return Version(options); },
          [&](const DoctorCommand& c) { return DoctorWithServer(options, c); },
      },
      options.command);
}

}  // namespace sandbar::cli
