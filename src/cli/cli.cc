#include "cli/cli.h"

#include <fcntl.h>
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

// Of `agent`, `eval` and `claude-worker`, whose pages in docs/ say what their codes mean.
constexpr int kVerdictFailed = 1;

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

// `ours`: the code that says "sandbar itself failed". It is 125 everywhere but for commands whose documented codes are
// verdicts of another kind.
int ExitCodeOf(const Options& options, const Error& error, int ours = kExitOurs) {
  if (error.cause == Cause::kOutputClosed) return 141;
  Complain(error, options.json);
  if (error.code == Code::kExecutableNotFound) return kExitNotFound;
  if (error.code == Code::kCancelled) return kExitInterrupted;
  if (error.cause == Cause::kNeedsRoot) return 2;
  return ours;
}

int Finish(const Options& options, const Result<int>& result, int ours) {
  return result ? *result : ExitCodeOf(options, result.error(), ours);
}

using ClientTask = std::function<Task<int>(ApiClient*)>;

int WithServer(const Options& options, const ClientTask& task, int ours = kExitOurs) {
  auto server = FindServer(options);
  if (!server) return ExitCodeOf(options, server.error(), ours);
  asio::io_context io(1);
  ApiClient api(io.get_executor(), std::move(*server));
  return Finish(options, Await(&io, task(&api)), ours);
}

bool Answers(const ServerRef& server) {
  asio::io_context io(1);
  ApiClient api(io.get_executor(), server);
  auto healthy = Await(&io, api.Healthy());
  return healthy && *healthy;
}

// Uses the server that is there, else one that lives just for this command. `staying`: what needs one that stays.
int Somewhere(const Options& options, const std::string& staying, const ClientTask& task, int ours = kExitOurs) {
  auto found = FindServer(options);
  StartedServer embedded;
  ServerRef server;
  const int wrong_settings = ours == kExitOurs ? kExitOurs : 2;
  if (found && (Answers(*found) || EnvironmentNamesServer(options))) {
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
    if (!started) return ExitCodeOf(options, started.error(), ours);
    embedded = std::move(*started);
    server = embedded.server;
  }
  int code = 0;
  {
    asio::io_context io(1);
    ApiClient api(io.get_executor(), std::move(server));
    code = Finish(options, Await(&io, task(&api)), ours);
  }
  StopEmbedded(&embedded);
  return code;
}

// Which option of `run` needs a server that outlives it; empty: none.
std::string StaysFor(const RunCommand& command) {
  if (command.keep) return command.is_sh ? "sh without --rm" : "--keep";
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
  return Somewhere(
      options, "", [o, &command, &plan](ApiClient* api) { return Eval(api, o, command.options, std::move(*plan)); },
      kVerdictFailed);
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

// The server of this machine, whatever SANDBAR_URL says.
Options Local(const Options& options) {
  Options local = options;
  local.data_given = true;
  return local;
}

int ReportServer(const Options& options, const std::string& url) {
  std::string data = options.data == kDefaultData ? "" : " --data " + ShellQuote(options.data);
  auto found = FindServer(Local(options));
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

std::string Shown(const std::string& value) {
  return value.empty() ? "the default" : value;
}

// `options` and `serve` as words behind a command.
std::string Words(const Options& options, const ServeCommand& serve) {
  std::string text = options.data == kDefaultData ? "" : " --data " + ShellWord(options.data);
  for (const std::string& word : FlagWords(serve)) text += " " + ShellWord(word);
  return text;
}

// A server runs, and `up` was given options: in force already, or refused with the way to apply them.
int CheckInForce(const Options& options, const ServeCommand& serve, const std::string& url, const Hooks& hooks) {
  auto record = hooks.record(options.data);
  if (!record) return ExitCodeOf(options, record.error());
  auto differences = hooks.compare(options, serve, *record);
  if (!differences) {
    Complain(differences.error(), options.json);
    return 2;
  }
  if (differences->empty()) return 0;
  std::string text = "a server runs already at " + url + ", with other settings:";
  bool needs_down = false;
  for (const Difference& d : *differences) {
    text += fmt::format("\n  {}: {} (asked: {})", d.key, Shown(d.running), Shown(d.asked));
    needs_down = needs_down || d.needs_down;
  }
  const std::string words = Words(options, serve);
  std::string fix = "sudo ./sandbar restart" + words + "   # sandboxes go on";
  if (needs_down) {
    fix = "sudo ./sandbar down" + Words(options, {}) + " && sudo ./sandbar up" + words +
          "   # stops every sandbox; their files stay";
  }
  return ExitCodeOf(options, FailWithFix(Code::kConflict, text, fix).error());
}

int Up(const Options& options, const UpCommand& command, const Hooks& hooks) {
  auto found = FindServer(Local(options));
  if (found && Answers(*found)) {
    if (!FlagWords(command.serve).empty()) {
      const int code = CheckInForce(options, command.serve, found->url, hooks);
      if (code != 0) return code;
    }
    Note("already running at " + found->url);
    return ReportServer(options, found->url);
  }
  auto started = StartBackground(options, command.serve);
  if (!started) return ExitCodeOf(options, started.error());
  Note("running at " + started->server.url + ", data in " + options.data + ", log in " + started->log);
  return ReportServer(options, started->server.url);
}

// What was given now, and for the rest what the server was started with.
ServeCommand Merge(ServeCommand asked, const json::object& flags) {
  const std::pair<const char*, std::optional<std::string>*> kFlags[] = {
      {"listen", &asked.listen},     {"config", &asked.config},   {"images", &asked.images},
      {"tls-cert", &asked.tls_cert}, {"tls-key", &asked.tls_key}, {"isolation", &asked.isolation}};
  for (const auto& [name, value] : kFlags)
    if (!*value && flags.contains(name)) *value = Text(flags, name);
  asked.insecure_http = asked.insecure_http || flags.contains("insecure-http");
  return asked;
}

int Restart(const Options& options, const RestartCommand& command, const Hooks& hooks) {
  auto found = FindServer(Local(options));
  if (!found || !Answers(*found)) return Up(options, UpCommand{command.serve}, hooks);
  auto record = hooks.record(options.data);
  if (!record) return ExitCodeOf(options, record.error());
  const json::value* background = record->if_contains("background");
  if (background != nullptr && background->is_bool() && !background->as_bool()) {
    auto wrong = FailWithFix(Code::kConflict, "the server at " + found->url + " was not started by `up`",
                             "restart it where it was started (a terminal, a service manager); its sandboxes go on");
    return ExitCodeOf(options, wrong.error());
  }
  const ServeCommand serve = Merge(command.serve, Object(*record, "flags"));
  // Before anything is stopped: options that cannot be used leave the server as it is.
  auto differences = hooks.compare(options, serve, *record);
  if (!differences) {
    Complain(differences.error(), options.json);
    return 2;
  }
  if (auto left = hooks.leave(options.data); !left) return ExitCodeOf(options, left.error());
  auto started = StartBackground(options, serve);
  if (!started) {
    Note("the sandboxes go on running without a server; start it again: sudo ./sandbar up" + Words(options, {}));
    return ExitCodeOf(options, started.error());
  }
  Note("restarted at " + started->server.url + "; sandboxes go on, log in " + started->log);
  for (const Difference& d : *differences)
    if (d.needs_down)
      Note(fmt::format("{} stays as it was ({}) until: sudo ./sandbar down{} && sudo ./sandbar up{}", d.key,
                       Shown(d.running), Words(options, {}), Words(options, serve)));
  return ReportServer(options, started->server.url);
}

int Down(const Options& options, const Hooks& hooks) {
  auto stopped = hooks.shut_down(options.data);
  if (!stopped) return ExitCodeOf(options, stopped.error());
  if (options.json) return Out(*stopped ? "{\"stopped\":true}\n" : "{\"stopped\":false}\n") ? 0 : 141;
  Note(*stopped ? "stopped" : "nothing was running for " + options.data);
  return 0;
}

int Token(const Options& options) {
  auto token = ReadToken(options.data);
  if (!token) {
    bool denied = token.error().sys_errno == EACCES;
    auto error = FailWithFix(Code::kNotFound, denied ? "this user cannot read " + options.data : token.error().message,
                             denied ? "sudo ./sandbar token" : "sudo ./sandbar up   # makes it at the first start");
    return ExitCodeOf(options, error.error());
  }
  std::string line = *token + "\n";
  if (options.json) {
    json::object report{{"token", *token}};
    line = wire::NdjsonLine(report);
  }
  return Out(line) ? 0 : 141;
}

// The server that every other command would use. Where SANDBAR_URL or SANDBAR_TOKEN name another than this machine's,
// that server writes the lines itself (and serves the preload to download).
int EnvSomewhere(const Options& options, const EnvCommand& command, const Hooks& hooks) {
  auto found = FindServer(options);
  if (found ? !IsLocalServer(options, *found) : EnvironmentNamesServer(options))
    return WithServer(options, [o = &options, &command](ApiClient* api) { return RemoteEnv(api, o, command); });
  auto done = LocalEnv(options, command, hooks.mint_jwt(options.data));
  return Finish(options, done, kExitOurs);
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
  // A closed standard input is an empty one. Without this, the next descriptor that is opened would get its number.
  if (::fcntl(0, F_GETFD) < 0) static_cast<void>(::open("/dev/null", O_RDONLY));
  const Options* o = &options;
  return std::visit(
      Overloaded{
          [&](const ServeCommand& c) { return hooks.serve(options, c); },
          [&](const UpCommand& c) { return Up(options, c, hooks); },
          [&](const RestartCommand& c) { return Restart(options, c, hooks); },
          [&](const DownCommand&) { return Down(options, hooks); },
          [&](const RunCommand& c) {
            return Somewhere(options, StaysFor(c), [o, &c](ApiClient* a) { return Run(a, o, c); });
          },
          [&](const CodeCommand& c) {
            const ClientTask task = [o, &c](ApiClient* a) { return RunCode(a, o, c); };
            return c.name.empty() ? Somewhere(options, "", task) : WithServer(options, task);
          },
          [&](const AgentCommand& c) {
            const std::string staying = c.options.sandbox ? "--sandbox" : c.options.from ? "--from" : "";
            const ClientTask task = [o, &c](ApiClient* a) { return Agent(a, o, c.options); };
            return Somewhere(options, staying, task, kVerdictFailed);
          },
          [&](const EvalCommand& c) { return EvalSomewhere(options, c); },
          [&](const ClaudeWorkerCommand& c) {
            const ClientTask task = [&c](ApiClient* a) { return ClaudeWorker(a, c.options); };
            return WithServer(options, task, kVerdictFailed);
          },
          [&](const ExecCommand& c) { return WithServer(options, [o, &c](ApiClient* a) { return Exec(a, o, c); }); },
          [&](const AttachCommand& c) {
            return WithServer(options, [o, &c](ApiClient* a) { return Attach(a, o, c); });
          },
          [&](const LogsCommand& c) { return WithServer(options, [o, &c](ApiClient* a) { return Logs(a, o, c); }); },
          [&](const PsCommand& c) { return WithServer(options, [o, &c](ApiClient* a) { return Ps(a, o, c); }); },
          [&](const StopCommand& c) { return WithServer(options, [o, &c](ApiClient* a) { return Stop(a, o, c); }); },
          [&](const RmCommand& c) { return WithServer(options, [o, &c](ApiClient* a) { return Rm(a, o, c); }); },
          [&](const CpCommand& c) { return WithServer(options, [o, &c](ApiClient* a) { return Copy(a, o, c); }); },
          [&](const DiffCommand& c) { return WithServer(options, [o, &c](ApiClient* a) { return Diff(a, o, c); }); },
          [&](const PromoteCommand& c) {
            return WithServer(options, [o, &c](ApiClient* a) { return Promote(a, o, c); });
          },
          [&](const ExportCommand& c) {
            return WithServer(options, [o, &c](ApiClient* a) { return Export(a, o, c); });
          },
          [&](const ImportCommand& c) {
            return WithServer(options, [o, &c](ApiClient* a) { return Import(a, o, c); });
          },
          [&](const RaceCommand& c) { return WithServer(options, [o, &c](ApiClient* a) { return Race(a, o, c); }); },
          [&](const NetCommand& c) { return WithServer(options, [o, &c](ApiClient* a) { return Net(a, o, c); }); },
          [&](const InspectCommand& c) {
            return WithServer(options, [o, &c](ApiClient* a) { return Inspect(a, o, c); });
          },
          [&](const SnapshotCommand& c) {
            return WithServer(options, [o, &c](ApiClient* a) { return Snapshot(a, o, c); });
          },
          [&](const ForkCommand& c) { return WithServer(options, [o, &c](ApiClient* a) { return Fork(a, o, c); }); },
          [&](const PauseCommand& c) { return WithServer(options, [o, &c](ApiClient* a) { return Pause(a, o, c); }); },
          [&](const ResumeCommand& c) {
            return WithServer(options, [o, &c](ApiClient* a) { return Resume(a, o, c); });
          },
          [&](const UsageCommand&) { return WithServer(options, [o](ApiClient* a) { return Usage(a, o); }); },
          [&](const ForwardCommand& c) {
            return WithServer(options, [o, &c](ApiClient* a) { return Forward(a, o, c); });
          },
          [&](const McpCommand& c) { return Somewhere(options, "", [&c](ApiClient* a) { return Mcp(a, c); }); },
          [&](const TokenCommand&) { return Token(options); },
          [&](const LoginCommand& c) { return WithServer(options, [o, &c](ApiClient* a) { return Login(a, o, c); }); },
          [&](const KeyCommand& c) { return WithServer(options, [o, &c](ApiClient* a) { return Key(a, o, c); }); },
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
