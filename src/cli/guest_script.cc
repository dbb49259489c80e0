#include "cli/guest_script.h"

#include <signal.h>

#include "base/printable.h"
#include "cli/attached_command.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "wire/ndjson.h"
#include "wire/url.h"

namespace sandbar::cli {
namespace {

constexpr size_t kMaxSaid = 1 << 20;
// How long a killed command may take to be gone.
constexpr std::chrono::seconds kEndGrace{5};

// One script that was started, and what it has said so far.
struct Running {
  std::unique_ptr<http::ClientResponse> response;
  std::unique_ptr<NdjsonReader> lines;
  std::string id;
  std::optional<int64_t> code;
  Ran ran;
};

Result<> Take(const json::object& line, Running* running) {
  const json::object& command = Object(line, "command");
  if (running->id.empty()) running->id = Text(command, "id");
  const json::value* code = command.if_contains("exitCode");
  if (code != nullptr && code->is_int64()) running->code = code->as_int64();
  const std::string stream = Text(line, "stream");
  if (stream == "error") return Fail(Code::kClosed, Printable(Text(Object(line, "data"), "message")));
  std::string& to = stream == "stdout" ? running->ran.out : running->ran.err;
  if (!stream.empty() && to.size() < kMaxSaid) to += Text(line, "data");
  return {};
}

// Returns when the server has named the command.
Task<Running> Start(ApiClient* api, std::string session, GuestScript script) {
  std::vector<std::string> argv = {"sh", "-c", std::move(script.text), "sh"};
  argv.insert(argv.end(), script.args.begin(), script.args.end());
  const CommandLine call{argv, {}, script.cwd, script.root, std::nullopt};
  json::object body = CommandBody(call, Streams{});
  body["wait"] = true;
  body["logs"] = true;
  http::ClientRequest request = api->Request("POST", SessionPath(session) + "/cmd", wire::ToAsciiJson(body));
  Running running;
  SB_CO_TRY(running.response, co_await api->Open(std::move(request)));
  running.lines = std::make_unique<NdjsonReader>(running.response.get());
  while (running.id.empty()) {
    SB_CO_TRY(auto line, co_await running.lines->Next());
    if (!line) co_return Fail(Code::kClosed, "the sandbox or server is gone");
    SB_CO_TRYV(Take(*line, &running));
  }
  co_return running;
}

Task<Ran> Finish(Running* running) {
  for (;;) {
    SB_CO_TRY(auto line, co_await running->lines->Next());
    if (!line) break;
    SB_CO_TRYV(Take(*line, running));
  }
  if (!running->code) co_return Fail(Code::kClosed, "the sandbox or server is gone");
  running->ran.code = *running->code;
  co_return std::move(running->ran);
}

Task<> Kill(ApiClient* api, std::string session, std::string id) {
  const std::string path = SessionPath(session) + "/cmd/" + wire::EncodeComponent(id);
  json::value body = json::object{{"signal", SIGKILL}};
  SB_CO_TRYV(co_await api->Call("POST", path + "/kill", std::move(body)));
  Task<json::object> ended = api->Call("GET", path + "?wait=true", std::nullopt);
  SB_CO_TRYV(co_await WithTimeout(std::move(ended), kEndGrace));
  co_return Result<>{};
}

}  // namespace

Task<Ran> RunInGuest(ApiClient* api, std::string session, GuestScript script) {
  SB_CO_TRY(Running running, co_await Start(api, std::move(session), std::move(script)));
  co_return co_await Finish(&running);
}

Task<Ran> RunUnlessSignalled(ApiClient* api, Signals* signals, std::string session, GuestScript script) {
  // The first signal lets the server name the command: without its id nobody can kill it.
  Task<Running> starting = Start(api, session, std::move(script));
  auto running = co_await UnlessSignalled(signals, 2, std::move(starting));
  if (!running) co_return std::unexpected(std::move(running).error());
  Task<Ran> finishing = Finish(&*running);
  auto ran = co_await UnlessSignalled(signals, 1, std::move(finishing));
  if (ran || signals->count() == 0) co_return ran;
  // A further signal ends the waiting for the kill.
  Task<> killing = Kill(api, std::move(session), running->id);
  auto killed = co_await UnlessSignalled(signals, signals->count() + 1, std::move(killing));
  if (!killed) Note("a command of this copy may still run in the sandbox: " + killed.error().message);
  co_return ran;
}

}  // namespace sandbar::cli
