#include "cli/attached_command.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>

#include "cli/commands.h"
#include "cli/output.h"
#include "wire/ndjson.h"
#include "wire/url.h"

namespace sandbar::cli {
namespace {

// Before somebody else's screen is drawn: attributes as at the start, and nothing on the screen.
constexpr std::string_view kClearScreen = "\033[!p\033[2J\033[H";
// After leaving a program that goes on: the ordinary screen, a visible cursor, no reports of mouse and paste.
constexpr std::string_view kLeaveScreen =
    "\033[?1047l\033[?1000l\033[?1002l\033[?1003l\033[?1006l\033[?2004l\033[?25h\033[0m\r\n";

constexpr std::chrono::milliseconds kNudge{200};

struct RawModeEnd {
  RawMode* raw;
  ~RawModeEnd() { raw->Leave(); }
};

json::object SizeJson(LocalSize size) {
  return {{"cols", size.cols}, {"rows", size.rows}};
}

std::vector<std::string> ShellFor(const Streams& streams) {
  if (!streams.terminal) return {"sh"};
  return {"sh", "-c", "if command -v bash >/dev/null 2>&1; then exec bash -l; else exec sh -l; fi"};
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

Streams StreamsFor(const IoOptions& options, bool has_command) {
  const bool keyboard = ::isatty(0) == 1;
  Streams streams;
  streams.terminal = options.terminal || (!has_command && keyboard && ::isatty(1) == 1);
  streams.input =
      !options.no_input && IsReadable(0) && (!keyboard || options.interactive || streams.terminal || !has_command);
  return streams;
}

json::object CommandBody(const CommandLine& line, const Streams& streams) {
  const std::vector<std::string> argv = line.argv.empty() ? ShellFor(streams) : line.argv;
  json::object env;
  // The programs draw for the terminal that the user has.
  const char* terminal = std::getenv("TERM");
  if (streams.terminal) env["TERM"] = terminal != nullptr && *terminal != '\0' ? terminal : "xterm";
  for (const auto& pair : line.env) {
    const size_t at = pair.find('=');
    env[pair.substr(0, at)] = pair.substr(at + 1);
  }
  json::object body{{"command", argv.front()},
                    {"args", json::array(argv.begin() + 1, argv.end())},
                    {"env", std::move(env)},
                    {"sudo", line.sudo}};
  if (line.cwd) body["cwd"] = *line.cwd;
  if (line.timeout_ms) body["timeout"] = *line.timeout_ms;
  if (streams.input || streams.terminal) body["stdin"] = true;
  if (streams.terminal) body["terminal"] = SizeJson(LocalTerminalSize());
  return body;
}

AttachedCommand::AttachedCommand(const asio::any_io_executor& ex, ApiClient* api, Settings settings)
    : api_(api),
      settings_(std::move(settings)),
      sink_(settings_.as_json),
      follower_(api, settings_.session, &sink_),
      sender_(ex, api),
      window_(ex, {SIGWINCH}),
      started_(ex) {
  follower_.on_started = [this](const json::object& command) { return Started(command); };
  follower_.on_reconnected = [this] { sender_.Verify(); };
}

Result<> AttachedCommand::Started(const json::object& command) {
  handle_->id = Text(command, "id");
  const json::value* terminal = command.if_contains("terminal");
  if (joined_) {
    settings_.io.terminal = terminal != nullptr && terminal->is_bool() && terminal->as_bool();
    follower_.quiet_gaps = settings_.io.terminal;
    // Keys go to a terminal; what is piped goes to other commands only when asked.
    if (settings_.io.terminal && !settings_.watch_only) settings_.io.input = settings_.io.input || ::isatty(0) == 1;
  }
  const bool keyboard = settings_.io.input && settings_.io.terminal && ::isatty(0) == 1;
  if (keyboard) {
    SB_TRYV(raw_.Enter(0));
  }
  if (joined_ && settings_.io.terminal && ::isatty(1) == 1) {
    SB_TRYV(WriteAll(1, kClearScreen));
  }
  // A terminal without input is at the end of its input: a shell that waited for keys would wait for ever.
  const bool empty = settings_.io.terminal && !settings_.io.input && !joined_;
  if (empty) nothing_ = Fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (settings_.io.input || empty) {
    StdinSender::Settings input;
    if (empty) input.fd = nothing_.get();
    input.joined = joined_;
    input.detach_keys = keyboard && settings_.may_detach;
    input.sends_end = !joined_ || !settings_.io.terminal;
    sender_.Begin(CommandPath(settings_.session, handle_->id), input);
  }
  if (joined_ && settings_.watch_only && ::isatty(0) == 1)
    Note("watching only; Ctrl-C leaves, and the command goes on");
  running_ = true;
  started_.Notify();
  return {};
}

Task<> AttachedCommand::Resize(LocalSize size) {
  json::value body = SizeJson(size);
  auto done = co_await api_->Call("POST", CommandPath(settings_.session, handle_->id) + "/resize", std::move(body));
  if (!done && done.error().code == Code::kCancelled) co_return std::unexpected(std::move(done).error());
  // A size that did not arrive is sent with the next change.
  co_return Result<>{};
}

// Tells the command the size of our window, whenever it changes.
Task<> AttachedCommand::Resizes() {
  while (!running_) SB_CO_TRYV(co_await started_.Wait());
  if (!settings_.io.terminal || settings_.watch_only || ::isatty(1) == 0) {
    for (;;) SB_CO_TRYV(co_await started_.Wait());
  }
  if (joined_) {
    // Two changes: a program that fills the screen draws it anew. It must see the first one before the second comes.
    const LocalSize size = LocalTerminalSize();
    LocalSize other = size;
    other.cols = std::max(1, size.cols - 1);
    SB_CO_TRYV(co_await Resize(other));
    SB_CO_TRYV(co_await Sleep(kNudge));
    SB_CO_TRYV(co_await Resize(size));
  }
  for (int seen = 0;;) {
    SB_CO_TRYV(co_await window_.Wait(seen + 1));
    seen = window_.count();
    const LocalSize size = LocalTerminalSize();
    SB_CO_TRYV(co_await Resize(size));
  }
}

Task<json::object> AttachedCommand::Begin(json::object body) {
  const std::string path = "/x/v1/sessions/" + wire::EncodeComponent(settings_.session) + "/commands";
  http::ClientRequest request = api_->Request("POST", path, wire::ToAsciiJson(body));
  SB_CO_TRY(auto answer, co_await api_->Open(std::move(request)));
  co_return co_await follower_.Follow(std::move(answer));
}

Error AttachedCommand::WithAttachHint(Error error) const {
  if (handle_->id.empty() || !RetryClock::MayPass(error) || !settings_.stays) return error;
  return FailWithFix(error.code, error.message + "; the command may still run",
                     fmt::format("sandbar attach {} {}", ShellWord(settings_.sandbox), handle_->id))
      .error();
}

// Why the command did not end by itself, and what it could not reach.
Task<> AttachedCommand::Explain(json::object command) {
  const int code = ExitCodeIn(command).value_or(0);
  // A denied connection often looks like something else to the program that made it.
  if (code != 0) co_await NoteDenials(api_, settings_.session, Number(command, "startedAt"));
  const bool timed_out = command.contains("timedOut"), out_of_memory = command.contains("oomKilled");
  if (timed_out) Note("the command was killed: its --timeout is over");
  if (out_of_memory) Note("the command was killed: the sandbox is out of memory");
  if (code > 128 && !timed_out && !out_of_memory) co_await NoteEnd(api_, settings_.session);
  co_return Result<>{};
}

// Nobody reads our output any more. The command gets what it would get from a pipe without a reader.
Task<> AttachedCommand::EndWithReader() {
  json::value body = json::object{{"signal", SIGPIPE}};
  std::string path = SessionPath(settings_.session) + "/cmd/" + wire::EncodeComponent(handle_->id) + "/kill";
  SB_CO_TRYV(co_await api_->Call("POST", std::move(path), std::move(body)));
  co_return Result<>{};
}

Task<int> AttachedCommand::Attach(Task<json::object> following) {
  using namespace asio::experimental::awaitable_operators;
  // Remarks about a signal that ends this come after it.
  const RawModeEnd restore{&raw_};
  Task<> input = sender_.Run();
  Task<> resizes = Resizes();
  auto first = co_await (std::move(following) || std::move(input) || std::move(resizes));
  const bool raw = raw_.entered();
  raw_.Leave();
  if (first.index() == 0) {
    auto ended = std::get<0>(std::move(first));
    if (!ended && ended.error().cause == Cause::kOutputClosed && !joined_) co_await EndWithReader();
    if (!ended) co_return std::unexpected(WithAttachHint(std::move(ended).error()));
    const int code = ExitCodeIn(*ended).value_or(kExitOurs);
    co_await Explain(*std::move(ended));
    co_return code;
  }
  Result<> side = first.index() == 1 ? std::get<1>(std::move(first)) : std::get<2>(std::move(first));
  if (!side) co_return std::unexpected(WithAttachHint(std::move(side).error()));
  handle_->detached = true;
  if (raw) {
    SB_CO_TRYV(WriteAll(1, kLeaveScreen));
  }
  Note(fmt::format("left; the command goes on: sandbar attach {} {}", ShellWord(settings_.sandbox), handle_->id));
  co_return 0;
}

Task<int> AttachedCommand::Start(json::object body, CommandHandle* handle) {
  if (handle != nullptr) handle_ = handle;
  Task<json::object> following = Begin(std::move(body));
  co_return co_await Attach(std::move(following));
}

Task<int> AttachedCommand::Join(std::string id) {
  joined_ = true;
  follower_.hold = false;
  Task<json::object> following = follower_.Join(std::move(id));
  co_return co_await Attach(std::move(following));
}

}  // namespace sandbar::cli
