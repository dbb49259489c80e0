// Commands: start (waited, with logs, detached), look, wait, follow, kill.
#include <boost/json.hpp>

#include "api/api.h"
#include "api/call.h"
#include "api/errors.h"
#include "api/handlers.h"
#include "api/keep_alive_stream.h"
#include "api/vercel/requests.h"
#include "api/vercel/shapes.h"
#include "wire/ndjson.h"
#include "wire/output_text.h"

namespace sandbar::api {
namespace {

namespace json = boost::json;

// Exactly this: with a charset behind it clients refuse the stream.
constexpr const char* kNdjson = "application/x-ndjson";

std::string CommandLine(const store::Command& command, bool v1) {
  json::object line{{"command", CommandJson(command, v1)}};
  return wire::NdjsonLine(line);
}

// Output bytes -> NDJSON lines. Each stream has its own decoder, so that a character split over two pieces arrives
// whole and the other stream cannot get between its halves. A line in which bytes had to be replaced says so, by a
// field that clients of the protocol pass over.
class OutputLines {
 public:
  std::string Feed(const sandbox::LogChunk& chunk) {
    std::string out;
    if (chunk.gap > 0) {
      out = End();
      wire::AppendOutputLine(out, "stderr",
                             "[sandbar: " + std::to_string(chunk.gap) + " bytes of output are missing here]\n");
    }
    const bool is_stderr = chunk.stream == 2;
    Append(out, is_stderr, (is_stderr ? stderr_ : stdout_).Feed(chunk.bytes));
    return out;
  }
  std::string End() {
    std::string out;
    Append(out, false, stdout_.Flush());
    Append(out, true, stderr_.Flush());
    return out;
  }

 private:
  static void Append(std::string& out, bool is_stderr, const wire::OutputText::Piece& piece) {
    if (piece.text.empty()) return;
    wire::AppendOutputLine(out, is_stderr ? "stderr" : "stdout", piece.text);
    if (piece.replaced) out.insert(out.size() - 2, kReplaced);
  }
  static constexpr std::string_view kReplaced = ",\"replaced\":true";
  wire::OutputText stdout_, stderr_;
};

// What a streaming handler and its pump share; lives in the handler's frame.
struct Streaming {
  Call* call;
  KeepAliveStream stream;
  store::Command command;
  std::unique_ptr<sandbox::LogReader> log;
  bool write_failed = false;

  Task<> Write(std::string bytes) {
    if (bytes.empty()) co_return Result<>{};
    auto done = co_await stream.Write(std::move(bytes));
    write_failed = write_failed || !done;
    co_return done;
  }
};

Task<> PumpLog(Streaming* s) {
  OutputLines lines;
  while (true) {
    SB_CO_TRY(sandbox::LogChunk chunk, co_await s->log->Next());
    if (chunk.bytes.empty() && chunk.gap == 0) break;
    std::string text = lines.Feed(chunk);
    SB_CO_TRYV(co_await s->Write(std::move(text)));
  }
  std::string rest = lines.End();
  co_return co_await s->Write(std::move(rest));
}

Task<store::Command> WaitFor(Streaming* s) {
  std::string session = s->command.session;
  std::string id = s->command.id;
  auto ended = co_await s->call->domain->commands->Wait(s->call->scope, std::move(session), std::move(id));
  if (ended && !ended->exit_code) co_return Fail(Code::kStopped, "the session ended before the command did");
  co_return ended;
}

Task<> PumpWaited(Streaming* s) {
  std::string first = CommandLine(s->command, s->call->v1());
  SB_CO_TRYV(co_await s->Write(std::move(first)));
  if (s->log) {
    SB_CO_TRYV(co_await PumpLog(s));
  }
  SB_CO_TRY(store::Command ended, co_await WaitFor(s));
  std::string last = CommandLine(ended, s->call->v1());
  co_return co_await s->Write(std::move(last));
}

// A failure after the head was sent can only be told in the stream.
Task<> WithErrorLine(Streaming* s, Task<> pump) {
  auto done = co_await std::move(pump);
  if (done || s->write_failed || done.error().code == Code::kCancelled) co_return done;
  std::string line = wire::ErrorLine("sandbox_stream_closed", PublicMessage(done.error()));
  co_return co_await s->Write(std::move(line));
}

Task<> RunNdjson(Streaming* s, Task<> pump) {
  SB_CO_TRYV(co_await s->call->StartStream(kNdjson));
  auto told = WithErrorLine(s, std::move(pump));
  SB_CO_TRYV(co_await s->stream.Run(std::move(told)));
  co_return co_await s->call->exchange->Finish();
}

Task<> PumpWaitJson(Streaming* s) {
  SB_CO_TRY(store::Command ended, co_await WaitFor(s));
  json::object body{{"command", CommandJson(ended, s->call->v1())}};
  std::string text = wire::ToAsciiJson(body);
  co_return co_await s->Write(std::move(text));
}

Task<store::Command> Find(Call* call) {
  std::string session = call->Param("session");
  std::string id = call->Param("command");
  co_return co_await call->domain->commands->Get(call->scope, std::move(session), std::move(id));
}

Streaming MakeStreaming(Call* call, std::string filler, store::Command command, const asio::any_io_executor& ex) {
  KeepAliveStream stream(call->exchange, std::move(filler), call->config->stream_keep_alive, ex);
  return Streaming{call, std::move(stream), std::move(command), nullptr};
}

}  // namespace

Task<> StartCommand(Call* call) {
  SB_CO_TRY(std::string text, co_await call->Body());
  SB_CO_TRY(CommandRequest request, ParseCommand(text, call->v1()));
  std::string session = call->Param("session");
  auto started = co_await call->domain->commands->Start(call->scope, std::move(session), std::move(request.spec));
  if (!started) co_return std::unexpected(std::move(started).error());
  if (!request.wait) {
    json::object body{{"command", CommandJson(started->command, call->v1())}};
    co_return co_await call->Reply(std::move(body));
  }
  auto ex = co_await asio::this_coro::executor;
  Streaming streaming = MakeStreaming(call, "\n", std::move(started->command), ex);
  streaming.log = std::move(started->log);
  auto pump = PumpWaited(&streaming);
  co_return co_await RunNdjson(&streaming, std::move(pump));
}

Task<> ListCommands(Call* call) {
  std::string session = call->Param("session");
  auto commands = co_await call->domain->commands->List(call->scope, std::move(session));
  if (!commands) co_return std::unexpected(std::move(commands).error());
  json::array items;
  for (const store::Command& command : *commands) items.emplace_back(CommandJson(command, call->v1()));
  json::object body{{"commands", std::move(items)}};
  co_return co_await call->Reply(std::move(body));
}

Task<> GetCommand(Call* call) {
  SB_CO_TRY(store::Command command, co_await Find(call));
  if (!call->Flag("wait") || command.exit_code) {
    json::object body{{"command", CommandJson(command, call->v1())}};
    co_return co_await call->Reply(std::move(body));
  }
  // Clients give up on a head after five minutes: it goes out now, blanks keep the connection warm until the body.
  SB_CO_TRYV(co_await call->StartStream("application/json"));
  auto ex = co_await asio::this_coro::executor;
  Streaming streaming = MakeStreaming(call, " ", std::move(command), ex);
  auto pump = PumpWaitJson(&streaming);
  SB_CO_TRYV(co_await streaming.stream.Run(std::move(pump)));
  co_return co_await call->exchange->Finish();
}

Task<> StreamLogs(Call* call) {
  SB_CO_TRY(store::Command command, co_await Find(call));
  std::string session = command.session;
  std::string id = command.id;
  auto log = co_await call->domain->commands->OpenLog(call->scope, std::move(session), std::move(id));
  if (!log) co_return std::unexpected(std::move(log).error());
  auto ex = co_await asio::this_coro::executor;
  Streaming streaming = MakeStreaming(call, "\n", std::move(command), ex);
  streaming.log = *std::move(log);
  auto pump = PumpLog(&streaming);
  co_return co_await RunNdjson(&streaming, std::move(pump));
}

Task<> KillCommand(Call* call) {
  SB_CO_TRY(std::string text, co_await call->Body());
  SB_CO_TRY(int signal, ParseKill(text));
  std::string session = call->Param("session");
  std::string id = call->Param("command");
  auto command = co_await call->domain->commands->Kill(call->scope, std::move(session), std::move(id), signal);
  if (!command) co_return std::unexpected(std::move(command).error());
  json::object body{{"command", CommandJson(*command, call->v1())}};
  co_return co_await call->Reply(std::move(body));
}

}  // namespace sandbar::api
