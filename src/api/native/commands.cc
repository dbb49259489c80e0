// Commands byte for byte (docs/commands.md): output as frames from any position, standard input, terminals' sizes.
#include <boost/json.hpp>
#include <charconv>

#include "api/api.h"
#include "api/call.h"
#include "api/errors.h"
#include "api/handlers.h"
#include "api/keep_alive_stream.h"
#include "api/vercel/shapes.h"
#include "wire/json_decode.h"
#include "wire/ndjson.h"
#include "wire/output_frames.h"

namespace sandbar::api {
namespace {

namespace json = boost::json;
using wire::OutputFrame;
using wire::OutputKind;

constexpr size_t kMaxInputBody = 1 << 20;

struct SizeBody {
  int cols = 0, rows = 0;
  void Check(wire::JsonIssues& issues) const {
    issues.Range("cols", cols, 0, static_cast<int>(protocol::kMaxTerminalSide));
    issues.Range("rows", rows, 0, static_cast<int>(protocol::kMaxTerminalSide));
  }
  protocol::TerminalSize Size() const { return {static_cast<uint32_t>(cols), static_cast<uint32_t>(rows)}; }
};
BOOST_DESCRIBE_STRUCT(SizeBody, (), (cols, rows))

struct StartBody {
  std::string command;
  std::vector<std::string> args;
  std::optional<std::string> cwd;
  std::map<std::string, std::string> env;
  bool sudo = false, detached = false;
  std::optional<int64_t> timeout;
  bool standard_input = false;
  std::optional<SizeBody> terminal;
  static constexpr wire::JsonAlias kJsonAliases[] = {{"stdin", "standardInput"}};
};
BOOST_DESCRIBE_STRUCT(StartBody, (), (command, args, cwd, env, sudo, detached, timeout, standard_input, terminal))

std::string CommandFrame(const store::Command& command) {
  const json::object body = CommandJson(command, false);
  return OutputFrame(OutputKind::kCommand, wire::ToAsciiJson(body));
}

std::string ErrorFrame(Code code, std::string_view message) {
  const json::object error{{"code", AnswerFor(code).code}, {"message", message}};
  return OutputFrame(OutputKind::kError, wire::ToAsciiJson(error));
}

// What the handler and its pump share; lives in the handler's frame.
struct Following {
  Call* call;
  KeepAliveStream stream;
  store::Command command;
  std::unique_ptr<sandbox::LogReader> log;
  bool write_failed = false;

  Task<> Write(std::string frames) {
    auto done = co_await stream.Write(std::move(frames));
    write_failed = write_failed || !done;
    co_return done;
  }
};

Task<> PumpFrames(Following* f) {
  SB_CO_TRYV(co_await f->Write(CommandFrame(f->command)));
  while (true) {
    SB_CO_TRY(sandbox::LogChunk chunk, co_await f->log->Next());
    if (chunk.bytes.empty() && chunk.gap == 0) break;
    std::string frames;
    if (chunk.gap > 0) frames = wire::GapFrame(chunk.gap);
    if (!chunk.bytes.empty())
      frames += OutputFrame(chunk.stream == 2 ? OutputKind::kStderr : OutputKind::kStdout, chunk.bytes);
    SB_CO_TRYV(co_await f->Write(std::move(frames)));
  }
  std::string session = f->command.session;
  std::string id = f->command.id;
  SB_CO_TRY(store::Command ended,
            co_await f->call->domain->commands->Wait(f->call->scope, std::move(session), std::move(id)));
  if (!ended.exit_code) co_return Fail(Code::kStopped, "the session ended before the command did");
  co_return co_await f->Write(CommandFrame(ended));
}

// A failure after the head was sent can only be told in the stream.
Task<> WithErrorFrame(Following* f, Task<> pump) {
  auto done = co_await std::move(pump);
  if (done || f->write_failed || done.error().code == Code::kCancelled) co_return done;
  std::string frame = ErrorFrame(done.error().code, PublicMessage(done.error()));
  co_return co_await f->Write(std::move(frame));
}

Task<> Follow(Call* call, store::Command command, std::unique_ptr<sandbox::LogReader> log) {
  auto ex = co_await asio::this_coro::executor;
  Following following{
      call,
      KeepAliveStream(call->exchange, OutputFrame(OutputKind::kKeepAlive, {}), call->config->stream_keep_alive, ex),
      std::move(command), std::move(log)};
  call->last_words = [](std::string_view why) { return ErrorFrame(Code::kUnauthenticated, why); };
  SB_CO_TRYV(co_await call->StartStream(std::string(wire::kOutputContentType)));
  auto pump = PumpFrames(&following);
  auto told = WithErrorFrame(&following, std::move(pump));
  SB_CO_TRYV(co_await following.stream.Run(std::move(told)));
  co_return co_await call->exchange->Finish();
}

json::object InputJson(const protocol::StdinState& state) {
  return {{"accepted", state.accepted}, {"taken", state.taken}, {"ended", state.ended}, {"closed", state.closed}};
}

struct InputPiece {
  uint64_t offset = 0;
  std::string bytes;
  bool ends = false;
};

Task<> WritePiece(sandbox::InputWriter* writer, InputPiece piece) {
  const uint64_t end = piece.offset + piece.bytes.size();
  if (!piece.bytes.empty()) {
    SB_CO_TRYV(co_await writer->Write(piece.offset, std::move(piece.bytes)));
  }
  if (!piece.ends) co_return Result<>{};
  co_return co_await writer->End(end);
}

}  // namespace

Task<> NativeStartCommand(Call* call) {
  SB_CO_TRY(std::string text, co_await call->Body());
  wire::JsonLimits limits{kMaxJsonBody, 32};
  SB_CO_TRY(StartBody body, wire::DecodeJson<StartBody>(text, limits));
  sandbox::CommandSpec spec;
  spec.command = std::move(body.command);
  spec.args = std::move(body.args);
  spec.cwd = std::move(body.cwd);
  spec.env = std::move(body.env);
  spec.sudo = body.sudo;
  spec.timeout_ms = body.timeout;
  spec.standard_input = body.standard_input;
  if (body.terminal) spec.terminal = body.terminal->Size();
  spec.follow_from_start = !body.detached;
  std::string session = call->Param("session");
  auto started = co_await call->domain->commands->Start(call->scope, std::move(session), std::move(spec));
  if (!started) co_return std::unexpected(std::move(started).error());
  if (!body.detached) co_return co_await Follow(call, std::move(started->command), std::move(started->log));
  json::object answer{{"command", CommandJson(started->command, false)}};
  co_return co_await call->Reply(std::move(answer));
}

Task<> NativeFollowOutput(Call* call) {
  SB_CO_TRY(uint64_t since, call->Number("since"));
  // A reader that is waited for can stop the command.
  if (call->Flag("hold")) SB_CO_TRYV(call->Need(sandbox::KeyRole::kOperator));
  std::string session = call->Param("session");
  std::string id = call->Param("command");
  SB_CO_TRY(store::Command command, co_await call->domain->commands->Get(call->scope, session, id));
  const sandbox::ReadFrom from{since, call->Flag("hold")};
  auto log = co_await call->domain->commands->OpenLog(call->scope, std::move(session), std::move(id), from);
  if (!log) co_return std::unexpected(std::move(log).error());
  co_return co_await Follow(call, std::move(command), *std::move(log));
}

Task<> NativeGetInput(Call* call) {
  std::string session = call->Param("session");
  std::string id = call->Param("command");
  auto state = co_await call->domain->commands->GetInput(call->scope, std::move(session), std::move(id));
  if (!state) co_return std::unexpected(std::move(state).error());
  co_return co_await call->Reply(InputJson(*state));
}

Task<> NativeWriteInput(Call* call) {
  using namespace asio::experimental::awaitable_operators;
  InputPiece piece;
  SB_CO_TRY(piece.offset, call->Number("offset"));
  if (!call->query.Get("offset"))
    co_return Fail(Code::kBadRequest, "`offset`: is required; GET on this path says where the input continues");
  piece.ends = call->Flag("end");
  auto bytes = co_await call->exchange->ReadAll(kMaxInputBody);
  if (!bytes && bytes.error().code == Code::kTooLarge)
    co_return Fail(Code::kTooLarge, "at most 1 MiB of standard input in one request: send several");
  if (!bytes) co_return std::unexpected(std::move(bytes).error());
  piece.bytes = *std::move(bytes);
  // Without bytes an offset says nothing about what was accepted.
  const uint64_t end = piece.bytes.empty() ? 0 : piece.offset + piece.bytes.size();
  std::string session = call->Param("session");
  std::string id = call->Param("command");
  auto writer = co_await call->domain->commands->OpenInput(call->scope, std::move(session), std::move(id));
  if (!writer) co_return std::unexpected(std::move(writer).error());
  // A command that does not read may keep the bytes waiting for ever; their sender does not.
  auto write = WritePiece(writer->get(), std::move(piece));
  auto left = call->exchange->WaitClosed();
  auto first = co_await (std::move(write) || std::move(left));
  if (first.index() == 1) co_return Fail(Code::kClosed, "the client went away");
  if (auto& written = std::get<0>(first); !written) co_return std::unexpected(std::move(written).error());
  SB_CO_TRY(protocol::StdinState state, (*writer)->State());
  // A command that has ended since does not say what it got.
  state.accepted = std::max(state.accepted, end);
  co_return co_await call->Reply(InputJson(state));
}

Task<> NativeResize(Call* call) {
  SB_CO_TRY(std::string text, co_await call->Body());
  wire::JsonLimits limits{kMaxJsonBody, 32};
  SB_CO_TRY(SizeBody body, wire::DecodeJson<SizeBody>(text, limits));
  std::string session = call->Param("session");
  std::string id = call->Param("command");
  SB_CO_TRYV(co_await call->domain->commands->Resize(call->scope, std::move(session), std::move(id), body.Size()));
  json::object nothing;
  co_return co_await call->Reply(std::move(nothing));
}

}  // namespace sandbar::api
