// `sandbar mcp`: the server's MCP endpoint on standard input and output, one JSON message per line. Every message is an
// HTTP request of its own, so both transports behave alike; what the client cancels is a connection that is dropped,
// and the server ends the command it waited for.
#include <fcntl.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/json.hpp>

#include "base/ids.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/signals.h"
#include "wire/json_parse.h"
#include "wire/ndjson.h"
#include "wire/url.h"

namespace sandbar::cli {
namespace {

constexpr size_t kMaxLine = 8 << 20;
constexpr size_t kMaxMessage = 32 << 20;
constexpr int kParseError = -32700;
constexpr int kInternalError = -32603;

Result<> Say(std::string_view json_line) {
  std::string line(json_line);
  // A body of the server's may be spread over lines; on this transport a line is a message.
  std::erase(line, '\n');
  // For a program: every byte counts.
  return WriteAll(1, line + "\n");
}

Result<> SayError(const json::value& id, int code, std::string_view message) {
  json::object error{{"code", code}, {"message", message}};
  json::object body{{"jsonrpc", "2.0"}, {"id", id}, {"error", std::move(error)}};
  return Say(wire::ToAsciiJson(body));
}

// Standard input in lines; an empty optional is its end.
class LineInput {
 public:
  static Result<std::unique_ptr<LineInput>> Open(const asio::any_io_executor& ex) {
    auto input = std::make_unique<LineInput>(ex);
    Fd copy(::fcntl(0, F_DUPFD_CLOEXEC, 3));
    boost::system::error_code ec;
    input->stream_.assign(copy.get(), ec);
    if (ec) return Fail(Code::kIo, "standard input must be a pipe: " + ec.message());
    (void)copy.Release();
    return input;
  }
  explicit LineInput(const asio::any_io_executor& ex) : stream_(ex) {}

  Task<std::optional<std::string>> Next() {
    size_t scanned = 0;
    while (true) {
      const size_t end = buffer_.find('\n', scanned);
      if (end != std::string::npos) {
        std::string line = buffer_.substr(0, end);
        buffer_.erase(0, end + 1);
        co_return line;
      }
      if (buffer_.size() > kMaxLine) co_return Fail(Code::kTooLarge, "a message is too long");
      scanned = buffer_.size();
      std::string piece(64 << 10, '\0');
      auto [ec, n] = co_await stream_.async_read_some(asio::buffer(piece), kToken);
      if (ec == asio::error::eof) co_return std::nullopt;
      if (ec) co_return std::unexpected(FromAsio(ec, "standard input"));
      buffer_.append(piece, 0, n);
    }
  }

 private:
  asio::posix::stream_descriptor stream_;
  std::string buffer_;
};

class Bridge {
 public:
  Bridge(const asio::any_io_executor& ex, ApiClient* api, std::string path)
      : api_(api), http_(http::MakeHttpClient(ex)), path_(std::move(path)), tasks_(ex) {}

  bool used() const { return used_; }

  // Until the client has nothing more to say and everything is answered.
  Task<> Run() {
    SB_CO_TRY(auto input, LineInput::Open(tasks_.executor()));
    while (true) {
      SB_CO_TRY(auto line, co_await input->Next());
      if (!line) break;
      SB_CO_TRYV(Take(*std::move(line)));
    }
    co_await tasks_.Join();
    co_return failed_ ? Result<>(Fail(Code::kClosed, Cause::kOutputClosed, "the reader of standard output is gone"))
                      : Result<>{};
  }
  asio::awaitable<void> Close() { co_await tasks_.Close(); }

 private:
  struct Call {
    explicit Call(const asio::any_io_executor& ex) : ended(ex) {}
    Event ended;
    bool cancelled = false;
  };

  Result<> Take(std::string line) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) return {};
    wire::JsonLimits limits;
    limits.bytes = kMaxLine;
    auto value = wire::ParseJson(line, limits);
    if (!value) return SayError(nullptr, kParseError, value.error().message);
    json::value id;
    if (const json::object* message = value->if_object()) {
      if (Text(*message, "method") == "notifications/cancelled") {
        Cancel(*message);
        return {};
      }
      const json::value* own = message->if_contains("id");
      // Nothing else that wants no answer means anything to a server without sessions.
      if (own == nullptr || !message->contains("method")) return {};
      id = *own;
      used_ = used_ || Text(*message, "method") == "tools/call";
    }
    tasks_.Spawn(Forward(std::move(line), std::move(id)));
    return {};
  }

  void Cancel(const json::object& message) {
    const json::value* id = Object(message, "params").if_contains("requestId");
    auto it = id == nullptr ? calls_.end() : calls_.find(json::serialize(*id));
    if (it == calls_.end()) return;
    it->second->cancelled = true;
    it->second->ended.Notify();
  }

  Task<> Forward(std::string line, json::value id) {
    using namespace asio::experimental::awaitable_operators;
    auto call = std::make_shared<Call>(tasks_.executor());
    const std::string key = json::serialize(id);
    if (!id.is_null()) calls_[key] = call;
    auto first = co_await (Exchange(std::move(line), id) || call->ended.Wait());
    if (auto it = calls_.find(key); it != calls_.end() && it->second == call) calls_.erase(it);
    if (call->cancelled || first.index() != 0) co_return Result<>{};
    const Result<>& done = std::get<0>(first);
    if (!done && done.error().code == Code::kCancelled) co_return done;
    auto said = done ? Result<>{} : SayError(id, kInternalError, done.error().message);
    failed_ = failed_ || !said;
    co_return said;
  }

  Task<> Exchange(std::string line, json::value id) {
    http::ClientRequest request = api_->Request("POST", path_, std::move(line));
    request.headers.push_back({"accept", "application/json, text/event-stream"});
    SB_CO_TRY(auto response, co_await http_->Send(std::move(request)));
    if (response->head().Get("content-type").starts_with("text/event-stream"))
      co_return co_await Events(response.get());
    SB_CO_TRY(std::string body, co_await response->ReadAll(kMaxMessage));
    if (body.empty()) co_return Result<>{};
    auto value = wire::ParseJson(body, {.bytes = kMaxMessage});
    const json::object* object = value ? value->if_object() : nullptr;
    if (object != nullptr && !object->contains("jsonrpc"))
      co_return SayError(id, kInternalError, Text(cli::Object(*object, "error"), "message"));
    co_return Say(body);
  }

  // Each event's data is a message: notifications first, the answer last.
  Task<> Events(http::ClientResponse* response) {
    std::string buffer;
    while (true) {
      SB_CO_TRY(std::string piece, co_await response->Read());
      if (piece.empty()) co_return Result<>{};
      buffer += piece;
      if (buffer.size() > kMaxMessage) co_return Fail(Code::kTooLarge, "a message is too long");
      for (size_t end = 0; (end = buffer.find('\n')) != std::string::npos; buffer.erase(0, end + 1)) {
        std::string_view field = std::string_view(buffer).substr(0, end);
        if (field.starts_with("data: ")) SB_CO_TRYV(Say(field.substr(6)));
      }
    }
  }

  ApiClient* api_;
  std::unique_ptr<http::HttpClient> http_;
  std::string path_;
  std::map<std::string, std::shared_ptr<Call>> calls_;
  bool used_ = false;
  bool failed_ = false;
  TaskGroup tasks_;
};

std::string PathOf(const McpCommand& command, const std::string& sandbox) {
  std::vector<std::pair<std::string, std::string>> query;
  if (command.admin_tools) query.emplace_back("admin", "1");
  if (command.image) query.emplace_back("image", *command.image);
  if (command.runtime) query.emplace_back("runtime", *command.runtime);
  if (command.isolation) query.emplace_back("isolation", *command.isolation);
  std::string allow;
  for (const std::string& domain : command.allow) allow += (allow.empty() ? "" : ",") + domain;
  if (!allow.empty())
    query.emplace_back("allow", allow);
  else
    query.emplace_back("network", command.network);
  return "/mcp/s/" + wire::EncodeComponent(sandbox) + "?" + wire::EncodeQuery(query);
}

}  // namespace

Task<int> Mcp(ApiClient* api, McpCommand command) {
  using namespace asio::experimental::awaitable_operators;
  // One that nobody named is this connection's own, and goes with it.
  const std::string sandbox = command.sandbox.value_or(NewLabel("mcp-", 12));
  auto ex = co_await asio::this_coro::executor;
  Bridge bridge(ex, api, PathOf(command, sandbox));
  Signals signals(ex, {SIGINT, SIGTERM, SIGHUP});
  Task<> work = bridge.Run();
  Task<int> signal = signals.Wait();
  auto first = co_await (std::move(work) || std::move(signal));
  co_await bridge.Close();
  if (!command.sandbox && bridge.used()) {
    auto gone = co_await api->Call("DELETE", "/v2/sandboxes/" + wire::EncodeComponent(sandbox), std::nullopt);
    if (!gone && gone.error().code != Code::kNotFound)
      Note("could not delete " + sandbox + ": " + gone.error().message);
  }
  if (first.index() == 1) co_return 0;
  const Result<>& done = std::get<0>(first);
  if (!done) co_return std::unexpected(done.error());
  co_return 0;
}

}  // namespace sandbar::cli
