#include <signal.h>

#include "cli/commands.h"
#include "cli/output.h"
#include "cli/signals.h"
#include "cli/stdin_remark.h"
#include "wire/ndjson.h"
#include "wire/url.h"

namespace sandbar::cli {
namespace {

constexpr int64_t kRunTimeoutMs = 3'600'000;
// How long a command may take to end by itself before it is killed.
constexpr std::chrono::seconds kEndGrace{5};

json::object EnvObject(const std::vector<std::string>& env) {
  json::object out;
  for (const auto& pair : env) {
    size_t at = pair.find('=');
    out[pair.substr(0, at)] = pair.substr(at + 1);
  }
  return out;
}

Result<json::value> PolicyOf(const RunCommand& command) {
  if (command.policy) return ReadPolicy(*command.policy);
  if (command.allow.empty()) return json::object{{"mode", command.network}};
  return json::object{{"allow", json::array(command.allow.begin(), command.allow.end())}};
}

Result<json::object> CreateBody(const RunCommand& command) {
  SB_TRY(json::value policy, PolicyOf(command));
  json::object body{{"projectId", kProject},
                    {"timeout", command.timeout_ms.value_or(kRunTimeoutMs)},
                    {"persistent", command.persistent || command.keep},
                    {"networkPolicy", std::move(policy)}};
  if (command.name) body["name"] = *command.name;
  if (command.image) body["image"] = *command.image;
  if (command.from) body["source"] = json::object{{"type", "snapshot"}, {"snapshotId", *command.from}};
  if (command.runtime) body["runtime"] = *command.runtime;
  if (command.vcpus) body["resources"] = json::object{{"vcpus", *command.vcpus}};
  AddDemand(command.isolation, &body);
  return body;
}

// One line of a command's stream to where it belongs. The finished command's exit code comes back.
Result<std::optional<int>> Show(const json::object& line, bool as_json) {
  std::string stream = Text(line, "stream");
  if (as_json) {
    SB_TRYV(Out(wire::NdjsonLine(line)));
  } else if (stream == "stdout" || stream == "stderr") {
    SB_TRYV(WriteAll(stream == "stdout" ? 1 : 2, Text(line, "data")));
  }
  if (stream == "error") return Fail(Code::kClosed, Printable(Text(Object(line, "data"), "message")));
  const json::object& command = Object(line, "command");
  const json::value* code = command.if_contains("exitCode");
  if (code != nullptr && code->is_int64()) return static_cast<int>(code->as_int64());
  return std::nullopt;
}

void Announce(const json::object& created) {
  const json::object& session = Object(created, "session");
  const json::object& sandbox = Object(created, "sandbox");
  std::string network = Text(Object(session, "networkPolicy"), "mode");
  std::string image = Text(sandbox, "image");
  image = image.substr(0, image.find("@"));
  const json::object& isolation = Object(session, "isolation");
  const std::string engine = Text(isolation, "engine");
  Note(fmt::format("{}: {}, class {} ({}, {}), network {}", Text(sandbox, "name"), image, Number(isolation, "class"),
                   engine, Boundary(engine), network.empty() ? "default" : network));
}

// A command that a signal ended may have gone down with its sandbox.
Task<> NoteEnd(ApiClient* api, std::string session) {
  SB_CO_TRY(json::object got, co_await api->Call("GET", SessionPath(session), std::nullopt));
  const json::object& s = Object(got, "session");
  if (Text(s, "status") == "running") co_return Result<>{};
  const std::string why = Text(s, "stopReason");
  Note("the command was killed: the sandbox has stopped" + (why.empty() ? "" : " (" + why + ")"));
  co_return Result<>{};
}

// A sandbox that `run` has made, and the signals that came meanwhile.
struct Fresh {
  ApiClient* api;
  Signals* signals;
  std::string name, session;
  const std::string* command;  // the id of the command that was started in it; null or empty: not known
};

// A call that is part of the way out: one more signal than now ends the waiting for it.
Task<json::object> CallPatiently(const Fresh* fresh, std::string method, std::string path) {
  Task<json::object> call = fresh->api->Call(std::move(method), std::move(path), std::nullopt);
  co_return co_await UnlessSignalled(fresh->signals, fresh->signals->count() + 1, std::move(call));
}

// Ours. Others may have been started in the sandbox from elsewhere, and are not ours to end; while our own is not known
// yet, nobody else can know the sandbox.
Task<std::vector<std::string>> RunningCommands(const Fresh* fresh) {
  SB_CO_TRY(json::object got, co_await CallPatiently(fresh, "GET", SessionPath(fresh->session) + "/cmd"));
  std::vector<std::string> ids;
  for (const auto& item : Array(got, "commands")) {
    const json::value* code = item.as_object().if_contains("exitCode");
    const std::string id = Text(item.as_object(), "id");
    const bool ours = fresh->command == nullptr || fresh->command->empty() || *fresh->command == id;
    if (ours && (code == nullptr || !code->is_int64())) ids.push_back(id);
  }
  co_return ids;
}

// Tells what still runs to end; after a while, or at the next signal, kills it.
Task<> EndCommands(const Fresh* fresh) {
  for (const int signal : {SIGTERM, SIGKILL}) {
    auto ids = co_await RunningCommands(fresh);
    // Another signal: no more waiting for what would end by itself.
    if (!ids && ids.error().code == Code::kCancelled) continue;
    if (!ids) co_return std::unexpected(std::move(ids).error());
    for (const std::string& id : *ids) {
      const std::string path = SessionPath(fresh->session) + "/cmd/" + wire::EncodeComponent(id);
      json::value body = json::object{{"signal", signal}};
      SB_CO_TRYV(co_await fresh->api->Call("POST", path + "/kill", std::move(body)));
      Task<json::object> ended = CallPatiently(fresh, "GET", path + "?wait=true");
      static_cast<void>(co_await WithTimeout(std::move(ended), kEndGrace));
    }
    if (ids->empty()) break;
  }
  co_return Result<>{};
}

// How to go on with it and how to be rid of it.
Task<> Keep(const Fresh* fresh, bool running) {
  const std::string quoted = ShellWord(fresh->name);
  const std::string remove = "; remove it: sandbar rm " + quoted;
  if (running) {
    Note(fmt::format("{} is kept, running: sandbar exec {} -- …{}", fresh->name, quoted, remove));
    co_return Result<>{};
  }
  auto stopped = co_await CallPatiently(fresh, "POST", SessionPath(fresh->session) + "/stop");
  if (stopped) {
    Note(fmt::format("{} is kept, stopped: sandbar resume {}{}", fresh->name, quoted, remove));
  } else {
    Note(fmt::format("{} is kept, but could not be stopped ({}): sandbar stop {}{}", fresh->name,
                     stopped.error().message, quoted, remove));
  }
  co_return Result<>{};
}

Task<> Delete(const Fresh* fresh) {
  auto gone = co_await CallPatiently(fresh, "DELETE", NamedPath(fresh->name));
  if (!gone && gone.error().code != Code::kNotFound)
    Note(fmt::format("could not delete {}: {}; try again: sandbar rm {}", fresh->name, gone.error().message,
                     ShellWord(fresh->name)));
  co_return Result<>{};
}

}  // namespace

void AddDemand(const IsolationOptions& isolation, json::object* body) {
  json::object demand;
  if (isolation.engine) demand["engine"] = *isolation.engine;
  if (isolation.min_class) demand["minClass"] = *isolation.min_class;
  if (!demand.empty()) (*body)["isolation"] = std::move(demand);
  if (isolation.nesting) (*body)["nesting"] = true;
}

json::object CommandBody(const std::vector<std::string>& argv, const std::vector<std::string>& env,
                         const std::optional<std::string>& cwd, bool sudo, std::optional<int64_t> timeout_ms) {
  json::array args;
  for (size_t i = 1; i < argv.size(); ++i) args.emplace_back(argv[i]);
  json::object body{{"command", argv.front()}, {"args", std::move(args)}, {"env", EnvObject(env)}, {"sudo", sudo}};
  if (cwd) body["cwd"] = *cwd;
  if (timeout_ms) body["timeout"] = *timeout_ms;
  return body;
}

Task<int> ExecIn(ApiClient* api, bool as_json, std::string session, json::object body, std::string* command_id) {
  body["wait"] = true;
  body["logs"] = true;
  std::string path = "/v2/sandboxes/sessions/" + wire::EncodeComponent(session) + "/cmd";
  http::ClientRequest request = api->Request("POST", path, wire::ToAsciiJson(body));
  SB_CO_TRY(auto response, co_await api->Open(std::move(request)));
  NdjsonReader lines(response.get());
  std::optional<int> exit_code;
  int64_t started_at = 0;
  bool timed_out = false, out_of_memory = false, replaced = false;
  for (;;) {
    SB_CO_TRY(auto line, co_await lines.Next());
    if (!line) break;
    const json::object& command = Object(*line, "command");
    if (started_at == 0) started_at = Number(command, "startedAt");
    if (command_id != nullptr && command_id->empty()) *command_id = Text(command, "id");
    timed_out = timed_out || command.contains("timedOut");
    out_of_memory = out_of_memory || command.contains("oomKilled");
    replaced = replaced || line->contains("replaced");
    SB_CO_TRY(auto code, Show(*line, as_json));
    if (code) exit_code = code;
  }
  if (replaced) Note(kReplacedRemark);
  if (!exit_code)
    co_return Fail(Code::kClosed, "the output ended before the command did: the sandbox or server is gone");
  // A denied connection often looks like something else to the program that made it.
  if (*exit_code != 0) co_await NoteDenials(api, session, started_at);
  if (timed_out) Note("the command was killed: its --timeout is over");
  if (out_of_memory) Note("the command was killed: the sandbox is out of memory");
  if (*exit_code > 128 && !timed_out && !out_of_memory) co_await NoteEnd(api, std::move(session));
  co_return *exit_code;
}

Task<int> InFreshSandbox(ApiClient* api, const Options* options, const RunCommand* command, SandboxWork work,
                         const std::string* started) {
  auto ex = co_await asio::this_coro::executor;
  Signals signals(ex, {SIGINT, SIGTERM, SIGHUP});
  // Version 3 of the API: without an image and a runtime, the server's default image.
  std::string path = command->runtime ? "/v2/sandboxes" : "/v3/sandboxes";
  SB_CO_TRY(json::value body, CreateBody(*command));
  // The first signal lets the server finish: a sandbox whose name we do not know could be neither kept nor deleted.
  Task<json::object> creating = api->Call("POST", path, std::move(body));
  auto created = co_await UnlessSignalled(&signals, 2, std::move(creating));
  if (!created && signals.count() > 1) {
    Note("the server may still make the sandbox; look for it: sandbar ps");
    SB_CO_TRY(int number, co_await signals.Wait());
    co_return 128 + number;
  }
  if (!created) co_return std::unexpected(std::move(created).error());
  Fresh fresh{api, &signals, Text(Object(*created, "sandbox"), "name"), Text(Object(*created, "session"), "id"),
              started};
  Announce(*created);
  Result<int> outcome = 0;
  if (options->json)
    if (auto said = Out(wire::NdjsonLine(*created)); !said) outcome = std::unexpected(std::move(said).error());
  if (outcome && signals.count() == 0) {
    Task<int> running = work(fresh.name, fresh.session);
    outcome = co_await UnlessSignalled(&signals, 1, std::move(running));
  }
  const bool interrupted = signals.count() > 0;
  if (interrupted) {
    outcome = co_await signals.Wait();
    if (outcome) *outcome += 128;
  }
  if (command->keep || command->persistent) {
    if (interrupted || !outcome) co_await EndCommands(&fresh);
    co_await Keep(&fresh, command->keep);
  } else {
    if (interrupted) Note("stopping " + fresh.name);
    co_await Delete(&fresh);
  }
  co_return outcome;
}

Task<int> Run(ApiClient* api, const Options* options, RunCommand command) {
  StdinRemark remark;
  json::object start = CommandBody(command.argv, command.env, command.cwd, command.sudo, std::nullopt);
  std::string id;
  SandboxWork work = [api, options, &start, &id](const std::string&, std::string session) {
    return ExecIn(api, options->json, std::move(session), std::move(start), &id);
  };
  auto ran = co_await InFreshSandbox(api, options, &command, std::move(work), &id);
  remark.Look();
  co_return ran;
}

}  // namespace sandbar::cli
