#include <signal.h>

#include <boost/json/serialize.hpp>

#include "cli/commands.h"
#include "cli/output.h"
#include "cli/signals.h"
#include "wire/ndjson.h"
#include "wire/url.h"

namespace sandbar::cli {
namespace {

constexpr int64_t kRunTimeoutMs = 3'600'000;

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
  net::ClientRequest request = api->Request("POST", path, wire::ToAsciiJson(body));
  SB_CO_TRY(auto response, co_await api->Open(std::move(request)));
  NdjsonReader lines(response.get());
  std::optional<int> exit_code;
  int64_t started_at = 0;
  bool timed_out = false, out_of_memory = false;
  for (;;) {
    SB_CO_TRY(auto line, co_await lines.Next());
    if (!line) break;
    const json::object& command = Object(*line, "command");
    if (started_at == 0) started_at = Number(command, "startedAt");
    if (command_id != nullptr && command_id->empty()) *command_id = Text(command, "id");
    timed_out = timed_out || command.contains("timedOut");
    out_of_memory = out_of_memory || command.contains("oomKilled");
    SB_CO_TRY(auto code, Show(*line, as_json));
    if (code) exit_code = code;
  }
  if (!exit_code)
    co_return Fail(Code::kClosed, "the output ended before the command did: the sandbox or server is gone");
  // A denied connection often looks like something else to the program that made it.
  if (*exit_code != 0) co_await NoteDenials(api, session, started_at);
  if (timed_out) Note("the command was killed: its --timeout is over");
  if (out_of_memory) Note("the command was killed: the sandbox is out of memory");
  if (*exit_code > 128 && !timed_out && !out_of_memory) co_await NoteEnd(api, std::move(session));
  co_return *exit_code;
}

Task<int> InFreshSandbox(ApiClient* api, const Options* options, const RunCommand* command, SandboxWork work) {
  using namespace asio::experimental::awaitable_operators;
  // Version 3 of the API: without an image and a runtime, the server's default image.
  std::string path = command->runtime ? "/v2/sandboxes" : "/v3/sandboxes";
  SB_CO_TRY(json::value body, CreateBody(*command));
  SB_CO_TRY(json::object created, co_await api->Call("POST", path, std::move(body)));
  std::string name = Text(Object(created, "sandbox"), "name");
  std::string session = Text(Object(created, "session"), "id");
  Announce(created);
  if (options->json) SB_CO_TRYV(Out(wire::NdjsonLine(created)));

  Task<int> running = work(name, session);
  auto ex = co_await asio::this_coro::executor;
  Signals signals(ex, {SIGINT, SIGTERM, SIGHUP});
  Task<int> signal = signals.Wait();
  auto first = co_await (std::move(running) || std::move(signal));
  bool interrupted = first.index() == 1;
  Result<int> outcome = interrupted ? std::get<1>(std::move(first)) : std::get<0>(std::move(first));
  if (interrupted && outcome) *outcome += 128;
  if (interrupted) Note("stopping " + name);
  // Kept only when asked for and when the user did not interrupt: Ctrl-C means "away with it".
  if (command->keep && !interrupted) {
    Note(fmt::format("kept: sandbar exec {} -- …", name));
  } else if (command->persistent && !interrupted) {
    auto stopped = co_await api->Call("POST", SessionPath(session) + "/stop", std::nullopt);
    Note(stopped ? "kept, stopped: sandbar resume " + name : "could not stop " + name + ": " + stopped.error().message);
  } else {
    auto gone = co_await api->Call("DELETE", NamedPath(name), std::nullopt);
    if (!gone && gone.error().code != Code::kNotFound) Note("could not delete " + name + ": " + gone.error().message);
  }
  co_return outcome;
}

Task<int> Run(ApiClient* api, const Options* options, RunCommand command) {
  json::object start = CommandBody(command.argv, command.env, command.cwd, command.sudo, std::nullopt);
  SandboxWork work = [api, options, &start](const std::string&, std::string session) {
    return ExecIn(api, options->json, std::move(session), std::move(start), nullptr);
  };
  co_return co_await InFreshSandbox(api, options, &command, std::move(work));
}

}  // namespace sandbar::cli
