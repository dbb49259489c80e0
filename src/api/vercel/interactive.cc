// The protocol's interactive shell: a ticket, then a WebSocket with a terminal behind it.
//
// Text messages of the client: {"type":"start",…} once, {"type":"resize",…}. Its binary messages are input. Ours:
// binary output, at last the text {"type":"exit","code":N}, then a close. A client that leaves without an end leaves
// the command running: `sandbar attach` finds it.
#include <fmt/format.h>

#include <boost/json.hpp>

#include "api/call.h"
#include "api/credential.h"
#include "api/errors.h"
#include "api/handlers.h"
#include "api/shares.h"
#include "api/terminal_tickets.h"
#include "http/websocket.h"
#include "wire/json_decode.h"
#include "wire/ndjson.h"

namespace sandbar::api {
namespace {

namespace json = boost::json;
using http::WebSocketKind;
using http::WebSocketMessage;

constexpr std::chrono::seconds kStartTimeout{10};
constexpr size_t kMaxPending = 1 << 20;  // bytes that were typed and not read yet; beyond that the client waits
constexpr int kCannotStart = 127;

// A start or a resize.
struct ClientMessage {
  std::string type;
  std::optional<std::string> command;
  std::vector<std::string> args, env;
  std::optional<std::string> cwd;
  std::optional<int64_t> cols, rows;
};
BOOST_DESCRIBE_STRUCT(ClientMessage, (), (type, command, args, env, cwd, cols, rows))

// What a client says of a size may be absent or absurd; a terminal has one in any case.
protocol::TerminalSize SizeOf(const ClientMessage& m) {
  auto side = [](std::optional<int64_t> n) {
    return static_cast<uint32_t>(std::clamp<int64_t>(n.value_or(0), 0, protocol::kMaxTerminalSide));
  };
  return {side(m.cols), side(m.rows)};
}

Result<ClientMessage> Decode(std::string_view text) {
  return wire::DecodeJson<ClientMessage>(text, wire::JsonLimits{1 << 20, 8});
}

// One terminal of one WebSocket. Lives in the handler's frame.
class Terminal {
 public:
  Terminal(Call* call, TerminalTicket ticket, const sandbox::Identity& who, const asio::any_io_executor& ex)
      : domain_(call->domain), ticket_(std::move(ticket)), credential_(who), typed_(ex), read_(ex), resized_(ex) {}

  Task<> Run(http::WebSocket* ws) {
    ws_ = ws;
    auto talk = Talk();
    auto ended = co_await credential_.Until(std::move(talk));
    if (ended || !credential_.ended()) co_return ended;
    auto last_words = ws_->Write(WebSocketKind::kText, "\r\nsandbar: " + std::string(credential_.Why()) + "\r\n");
    SB_CO_TRYV(co_await WithTimeout(std::move(last_words), kLastWordsTime));
    co_return co_await ws_->Close(wire::kClosePolicy, "the credential has ended");
  }

 private:
  Task<> Talk() {
    using namespace asio::experimental::awaitable_operators;
    auto started = co_await Start();
    if (!started) co_return co_await Refuse(std::move(started).error());
    auto ended = co_await (PumpOutput() || ReadMessages() || WriteInput() || ApplySizes());
    // The first to end says how it went; only the output's end is the command's.
    co_return std::visit([](auto& result) { return std::move(result); }, ended);
  }

  Task<> Start() {
    Task<WebSocketMessage> reading = ws_->Read();
    SB_CO_TRY(WebSocketMessage first, co_await WithTimeout(std::move(reading), kStartTimeout));
    if (first.kind != WebSocketKind::kText) co_return Fail(Code::kBadRequest, "the first message must be a start");
    SB_CO_TRY(ClientMessage start, Decode(first.data));
    if (start.type != "start" || !start.command)
      co_return Fail(Code::kBadRequest, "the first message must be a start with a command");
    sandbox::CommandSpec spec;
    spec.command = *std::move(start.command);
    spec.args = std::move(start.args);
    spec.cwd = std::move(start.cwd);
    for (const std::string& pair : start.env) {
      const size_t at = pair.find('=');
      if (at == std::string::npos) co_return Fail(Code::kBadRequest, "`env`: every item must be NAME=value");
      spec.env[pair.substr(0, at)] = pair.substr(at + 1);
    }
    spec.terminal = SizeOf(start);
    spec.follow_from_start = true;
    auto started = co_await domain_->commands->Start(ticket_.scope, ticket_.session, std::move(spec));
    if (!started) co_return std::unexpected(std::move(started).error());
    command_ = std::move(started->command.id);
    log_ = std::move(started->log);
    auto input = co_await domain_->commands->OpenInput(ticket_.scope, ticket_.session, command_);
    if (!input) co_return std::unexpected(std::move(input).error());
    input_ = *std::move(input);
    co_return Result<>{};
  }

  // The client prints text that is no JSON.
  Task<> Refuse(Error error) {
    if (error.code == Code::kClosed || error.code == Code::kCancelled) co_return std::unexpected(std::move(error));
    std::string text = "sandbar: " + PublicMessage(error);
    if (ticket_.first_use) {
      // Nothing was ever done in it, and its maker leaves now: it would run until its timeout for nobody.
      auto stopped = co_await domain_->sessions->Stop(ticket_.scope, ticket_.session);
      if (stopped) text += "; the sandbox that was made for this shell has been stopped";
    }
    SB_CO_TRYV(co_await ws_->Write(WebSocketKind::kText, text + "\r\n"));
    co_return co_await SendExit(kCannotStart);
  }

  Task<> SendExit(int code) {
    const json::object exit{{"type", "exit"}, {"code", code}};
    SB_CO_TRYV(co_await ws_->Write(WebSocketKind::kText, wire::ToAsciiJson(exit)));
    co_return co_await ws_->Close(1000, "");
  }

  Task<> PumpOutput() {
    while (true) {
      SB_CO_TRY(sandbox::LogChunk chunk, co_await log_->Next());
      if (chunk.bytes.empty() && chunk.gap == 0) break;
      if (chunk.bytes.empty()) continue;
      SB_CO_TRYV(co_await ws_->Write(WebSocketKind::kBinary, std::move(chunk.bytes)));
    }
    auto ended = co_await domain_->commands->Wait(ticket_.scope, ticket_.session, command_);
    if (!ended) co_return std::unexpected(std::move(ended).error());
    co_return co_await SendExit(ended->exit_code.value_or(1));
  }

  Task<> ReadMessages() {
    while (true) {
      SB_CO_TRY(WebSocketMessage message, co_await ws_->Read());
      if (message.kind == WebSocketKind::kClose) co_return Result<>{};
      if (message.kind == WebSocketKind::kBinary) {
        pending_ += message.data;
        typed_.Notify();
        while (pending_.size() > kMaxPending) {
          SB_CO_TRYV(co_await read_.Wait());
        }
        continue;
      }
      auto said = Decode(message.data);
      // Clients may have messages that are newer than this server.
      if (!said || said->type != "resize") continue;
      wanted_ = SizeOf(*said);
      resized_.Notify();
    }
  }

  Task<> WriteInput() {
    uint64_t offset = 0;
    while (true) {
      while (pending_.empty()) {
        SB_CO_TRYV(co_await typed_.Wait());
      }
      std::string bytes = std::exchange(pending_, {});
      read_.Notify();
      const size_t size = bytes.size();
      SB_CO_TRYV(co_await input_->Write(offset, std::move(bytes)));
      offset += size;
    }
  }

  // The newest size only: a flood of them is one change.
  Task<> ApplySizes() {
    while (true) {
      while (!wanted_) {
        SB_CO_TRYV(co_await resized_.Wait());
      }
      const protocol::TerminalSize size = *std::exchange(wanted_, std::nullopt);
      SB_CO_TRYV(co_await domain_->commands->Resize(ticket_.scope, ticket_.session, command_, size));
    }
  }

  const sandbox::Roles* domain_;
  TerminalTicket ticket_;
  Credential credential_;
  http::WebSocket* ws_ = nullptr;
  std::string command_;
  std::unique_ptr<sandbox::LogReader> log_;
  std::unique_ptr<sandbox::InputWriter> input_;
  std::string pending_;
  std::optional<protocol::TerminalSize> wanted_;
  Event typed_, read_, resized_;
};

}  // namespace

Task<> OpenInteractive(Call* call) {
  std::string session = call->Param("session");
  auto view = co_await call->domain->sessions->Get(call->scope, session);
  if (!view) co_return std::unexpected(std::move(view).error());
  if (view->session.status == store::Status::kStopped) co_return Fail(Code::kStopped, "the session was stopped");
  TerminalTicket ticket{call->scope, std::move(session), call->first_use};
  // http: becomes ws:, https: becomes wss:.
  json::object body{{"url", "ws" + call->base_url.substr(4) + "/x/v1/terminal"},
                    {"token", call->terminal_tickets->Issue(std::move(ticket))}};
  co_return co_await call->Reply(std::move(body));
}

Task<> ServeTerminal(Call* call) {
  if (!call->exchange->wants_upgrade())
    co_return Fail(Code::kBadRequest, "this path speaks WebSocket only: Connection: Upgrade, Upgrade: websocket");
  auto ticket = call->terminal_tickets->Redeem(std::string(call->query.Get("token").value_or("")));
  if (!ticket)
    co_return Fail(Code::kUnauthenticated,
                   "the ticket is unknown, was used, or is older than 30 seconds: ask for another one");
  SB_CO_TRY(sandbox::Identity who, call->domain->keys->Recall(ticket->scope.caller));
  ticket->scope.caller = who.principal;
  SB_CO_TRYV(sandbox::CheckRole(who.principal, sandbox::KeyRole::kOperator));
  call->exchange->Vouch();
  call->scope = ticket->scope;
  SB_CO_TRY(Shares::Place place, call->shares->Take(call->ShareName(), ""));
  // The session is in use as long as the terminal is.
  const std::shared_ptr<void> in_use = call->domain->sessions->Use(ticket->scope, ticket->session);
  auto ex = co_await asio::this_coro::executor;
  Terminal terminal(call, *std::move(ticket), who, ex);
  http::WebSocketSession session = [&terminal](http::WebSocket* ws) { return terminal.Run(ws); };
  const http::WebSocketOptions options;
  co_return co_await http::ServeWebSocket(call->exchange, options, std::move(session));
}

}  // namespace sandbar::api
