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

constexpr int64_t kRunTimeoutMs = 3'600'000;
// How long a command may take to end by itself before it is killed.
constexpr std::chrono::seconds kEndGrace{5};

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

// A sandbox that `run` has made, and the signals that came meanwhile.
struct Fresh {
  ApiClient* api;
  Signals* signals;
  std::string name, session;
  const CommandHandle* command;  // that was started in it; null or without an id: not known
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
    const bool ours = fresh->command == nullptr || fresh->command->id.empty() || fresh->command->id == id;
    if (ours && (code == nullptr || !code->is_int64())) ids.push_back(id);
  }
  co_return ids;
}

// Tells what still runs to end; after a while, or at the next signal, kills it. A command that was told already is
// killed at once.
Task<> EndCommands(const Fresh* fresh, bool told) {
  for (const int signal : {SIGTERM, SIGKILL}) {
    if (told && signal == SIGTERM) continue;
    auto ids = co_await RunningCommands(fresh);
    // Another signal: no more waiting for what would end by itself.
    if (!ids && ids.error().code == Code::kCancelled) continue;
    if (!ids) co_return std::unexpected(std::move(ids).error());
    for (const std::string& id : *ids) {
      const std::string path = SessionPath(fresh->session) + "/cmd/" + wire::EncodeComponent(id);
      SB_CO_TRYV(co_await SendSignal(fresh->api, fresh->session, id, signal));
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

Task<int> InFreshSandbox(ApiClient* api, const Options* options, const RunCommand* command, SandboxWork work,
                         const CommandHandle* started) {
  using namespace asio::experimental::awaitable_operators;
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
  InterruptRelay relay{api, &signals, fresh.session, started};
  bool interrupted = signals.count() > 0;
  if (outcome && !interrupted) {
    Task<int> running = work(fresh.name, fresh.session);
    Task<int> leaving = relay.WaitToLeave();
    auto first = co_await (std::move(running) || std::move(leaving));
    interrupted = first.index() == 1;
    if (!interrupted) outcome = std::get<0>(std::move(first));
  }
  if (interrupted) {
    outcome = co_await signals.Wait();
    if (outcome) *outcome += 128;
  }
  if (started != nullptr && started->detached) {
    co_await Keep(&fresh, true);
  } else if (command->keep || command->persistent) {
    if (interrupted || !outcome) co_await EndCommands(&fresh, relay.passed_on);
    co_await Keep(&fresh, command->keep);
  } else {
    if (interrupted) Note("stopping " + fresh.name);
    co_await Delete(&fresh);
  }
  co_return outcome;
}

Task<int> Run(ApiClient* api, const Options* options, RunCommand command) {
  auto ex = co_await asio::this_coro::executor;
  const Streams streams = StreamsFor(command.io, !command.argv.empty());
  // A server of our own ends with us, and everything in it too.
  auto server = FindServer(*options);
  const bool stays = server && server->url == api->url();
  const CommandLine line{command.argv, command.env, command.cwd, command.sudo, std::nullopt};
  json::object start = CommandBody(line, streams);
  CommandHandle handle;
  std::optional<AttachedCommand> attached;
  SandboxWork work = [&](std::string name, std::string session) {
    AttachedCommand::Settings settings{std::move(session), std::move(name), streams, options->json, stays, false,
                                       command.keep};
    attached.emplace(ex, api, std::move(settings));
    return attached->Start(std::move(start), &handle);
  };
  co_return co_await InFreshSandbox(api, options, &command, std::move(work), &handle);
}

}  // namespace sandbar::cli
