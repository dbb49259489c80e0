// MCP over streamable HTTP, keeping nothing between requests: one POST, one answer, as JSON or, when the client wants
// to hear of progress, as a stream of events that ends with it. What the messages mean is mcp/.
//
// /mcp/s/{name} is about one sandbox; at /mcp every call may name one. Query: admin=1 adds the operator's tools; image,
// runtime, network and allow say how a sandbox is made that is not there.
#include <boost/json.hpp>

#include "api/api.h"
#include "api/call.h"
#include "api/errors.h"
#include "api/handlers.h"
#include "api/mcp/calls.h"
#include "api/vercel/requests.h"
#include "async/cancelled.h"
#include "base/ids.h"
#include "crypto/digest.h"
#include "egress/policy_json.h"
#include "mcp/server.h"
#include "wire/json_parse.h"
#include "wire/ndjson.h"

namespace sandbar::api {
namespace {

namespace json = boost::json;

constexpr size_t kMaxBatch = 16;
constexpr std::chrono::seconds kStall{30};
constexpr size_t kMaxSessionId = 128;

Task<> ReplyRpc(Call* call, json::value body, int status, std::string session = "") {
  http::HttpResponse response;
  response.status = status;
  response.body = wire::ToAsciiJson(body);
  response.headers = SecurityHeaders();
  if (!session.empty()) response.headers.push_back({"Mcp-Session-Id", std::move(session)});
  co_return co_await call->exchange->Respond(std::move(response));
}

Task<> Accepted(Call* call) {
  http::HttpResponse response;
  response.status = 202;
  response.headers = SecurityHeaders();
  co_return co_await call->exchange->Respond(std::move(response));
}

Task<> Refuse(Call* call, json::value id, mcp::RpcError error, int status = 400) {
  json::value body = mcp::ErrorMessage(id, error);
  co_return co_await ReplyRpc(call, std::move(body), status);
}

Result<egress::NetworkPolicy> PolicyOf(const wire::Query& query) {
  auto allow = query.Get("allow");
  auto mode = query.Get("network");
  if (allow && mode) return Fail(Code::kBadRequest, "network and allow: give one of them");
  json::object policy{{"mode", mode.value_or("deny-all")}};
  if (allow) {
    json::array domains;
    std::string_view rest = *allow;
    while (!rest.empty()) {
      const size_t comma = rest.find(',');
      domains.emplace_back(rest.substr(0, comma));
      rest.remove_prefix(comma == std::string_view::npos ? rest.size() : comma + 1);
    }
    policy = {{"allow", std::move(domains)}};
  }
  return egress::ParsePolicy(wire::ToAsciiJson(policy));
}

Result<mcp::Connection> MakeConnection(const Call& call) {
  mcp::Connection connection;
  connection.domain = call.domain;
  connection.cells = call.cells;
  connection.scope = call.scope;
  connection.settings = call.config->mcp;
  connection.admin = call.Flag("admin");
  auto name = call.params.find("name");
  connection.sandbox_argument = name == call.params.end();
  // A client that names no sandbox gets one of its own: one per key and project, whichever token of the key it shows.
  const std::string who = call.caller().key_id + "\n" + call.scope.team + "\n" + call.scope.project;
  connection.sandbox = connection.sandbox_argument ? "mcp-" + crypto::Sha256Hex(who).substr(0, 16) : name->second;
  connection.make.image = call.query.Get("image");
  connection.make.runtime = call.query.Get("runtime");
  if (connection.make.image && connection.make.runtime)
    return Fail(Code::kBadRequest, "image and runtime: give one of them");
  SB_TRY(connection.make.network, PolicyOf(call.query));
  SB_TRY(auto demand, ParseDemand(call.query, "isolation"));
  connection.make.isolation = demand.value_or(store::IsolationDemand{});
  connection.server_info = {{"name", "sandbar"}, {"title", "Sandbar"}, {"version", call.config->version}};
  connection.preview_url = [urls = call.preview_urls](const store::PortRoute& route) {
    return urls.before + route.subdomain + urls.after;
  };
  connection.public_message = PublicMessage;
  return connection;
}

std::string SseEvent(const json::object& message) {
  return "event: message\ndata: " + wire::ToAsciiJson(message) + "\n\n";
}

class SseProgress : public mcp::Progress {
 public:
  SseProgress(http::HttpExchange* exchange, json::value token) : exchange_(exchange), token_(std::move(token)) {}
  Task<> Report(double progress, std::string text) override {
    // It has to grow with every message.
    last_ = std::max(progress, last_ + 0.001);
    std::string event = SseEvent(mcp::ProgressMessage(token_, last_, text));
    co_return co_await exchange_->Write(std::move(event));
  }

 private:
  http::HttpExchange* exchange_;
  json::value token_;
  double last_ = -0.001;
};

// One request under way; lives in the handler's frame.
struct Running {
  Call* call = nullptr;
  const mcp::Connection* connection = nullptr;
  mcp::Message message;
  mcp::Waited waited;
  std::unique_ptr<SseProgress> progress;  // set: the answer is a stream of events
  json::object answer;
  std::shared_ptr<McpCalls::Entry> entry;
  bool cancelled = false;  // by a message: no answer is wanted
};

// Under which a client's message finds its request; empty when the client cannot be told from others.
std::string KeyOf(const Call& call, const json::value* request_id) {
  const std::string_view session = call.request().Get("mcp-session-id");
  if (session.empty() || session.size() > kMaxSessionId || request_id == nullptr || request_id->is_null()) return "";
  return call.caller().key_id + "\n" + call.scope.team + "\n" + call.scope.project + "\n" + std::string(session) +
         "\n" + json::serialize(*request_id);
}

Task<> Work(Running* r) {
  mcp::Message message = r->message;
  r->answer = co_await mcp::Answer(r->connection, std::move(message), r->progress.get(), &r->waited);
  co_return Result<>{};
}

Task<> Closed(Running* r) {
  auto closed = co_await r->call->exchange->WaitClosed();
  // Seen before the work is cancelled, which may be at a point where it cannot stop.
  if (closed && !r->call->credential->ended()) r->waited.abandoned = true;
  co_return closed;
}

Task<> Cancelled(Running* r) {
  auto cancelled = co_await r->entry->Wait();
  if (cancelled) r->cancelled = r->waited.abandoned = true;
  co_return cancelled;
}

// To its end, or until the client is gone or cancels it: then what it waited for is ended too.
Task<> RunToAnswer(Running* r) {
  using namespace asio::experimental::awaitable_operators;
  auto ex = co_await asio::this_coro::executor;
  r->entry = r->call->mcp_calls->Add(KeyOf(*r->call, &r->message.id), ex);
  auto first = co_await (Work(r) || Closed(r) || Cancelled(r));
  // The server closes: sandboxes go on, and so does what runs in them.
  SB_CO_TRYV(co_await CheckCancelled());
  if (first.index() == 0) co_return std::get<0>(std::move(first));
  // The command that the call started goes on: the client can ask for it with another token.
  if (r->call->credential->ended()) co_return std::unexpected(r->call->credential->Refusal());
  mcp::Waited waited = r->waited;
  auto ended = co_await mcp::Abandon(r->connection, std::move(waited));
  if (!ended) log::Warn("ending a command whose client is gone: {}", ended.error().message);
  if (r->cancelled) co_return Result<>{};
  co_return Fail(Code::kClosed, "the client is gone");
}

int StatusOf(const mcp::Message& message, const json::object& answer) {
  const json::value* error = answer.if_contains("error");
  const bool unknown = error != nullptr && error->at("code") == mcp::kMethodNotFound;
  return unknown && message.modern ? 404 : 200;
}

Task<> ServeOne(Call* call, const mcp::Connection* connection, mcp::Message message) {
  Running running;
  running.call = call;
  running.connection = connection;
  running.message = std::move(message);
  const bool takes_events = call->request().Get("accept").find("text/event-stream") != std::string_view::npos;
  if (running.message.method == "tools/call" && !running.message.progress_token.is_null() && takes_events) {
    running.progress = std::make_unique<SseProgress>(call->exchange, running.message.progress_token);
    call->exchange->LimitStalls(kStall);
    call->last_words = [id = running.message.id](std::string_view why) {
      mcp::RpcError ended{mcp::kInvalidRequest, std::string(why), std::nullopt};
      return SseEvent(mcp::ErrorMessage(id, ended));
    };
    SB_CO_TRYV(co_await call->StartStream("text/event-stream"));
  }
  SB_CO_TRYV(co_await RunToAnswer(&running));
  if (running.cancelled && running.progress) co_return co_await call->exchange->Finish();
  if (running.cancelled) co_return co_await Accepted(call);
  if (!running.progress) {
    const int status = StatusOf(running.message, running.answer);
    json::value body = std::move(running.answer);
    std::string session = running.message.method == "initialize" ? NewId("") : "";
    co_return co_await ReplyRpc(call, std::move(body), status, std::move(session));
  }
  std::string last = SseEvent(running.answer);
  SB_CO_TRYV(co_await call->exchange->Write(std::move(last)));
  co_return co_await call->exchange->Finish();
}

// Only versions before 2025-06-18 have these. One after the other; no progress.
Task<> ServeBatch(Call* call, const mcp::Connection* connection, const json::array* batch, mcp::Headers headers) {
  json::value none;
  mcp::RpcError refused{mcp::kInvalidRequest, "", std::nullopt};
  if (!mcp::AllowsBatch(headers.version))
    refused.message = "this protocol version has no batches";
  else if (batch->empty() || batch->size() > kMaxBatch)
    refused.message = "a batch has 1 to " + std::to_string(kMaxBatch) + " messages";
  if (!refused.message.empty()) co_return co_await Refuse(call, std::move(none), std::move(refused));
  json::array answers;
  for (const json::value& item : *batch) {
    Running running;
    running.call = call;
    running.connection = connection;
    running.message = mcp::ReadMessage(item, headers);
    if (!running.message.error && (running.message.modern || running.message.method == "initialize"))
      running.message.error = mcp::RpcError{mcp::kInvalidRequest, "must not be in a batch", std::nullopt};
    if (running.message.error) {
      answers.emplace_back(mcp::ErrorMessage(running.message.id, *running.message.error));
      continue;
    }
    if (running.message.kind != mcp::Kind::kRequest) continue;
    SB_CO_TRYV(co_await RunToAnswer(&running));
    if (!running.cancelled) answers.emplace_back(std::move(running.answer));
  }
  if (answers.empty()) co_return co_await Accepted(call);
  json::value body = std::move(answers);
  co_return co_await ReplyRpc(call, std::move(body), 200);
}

}  // namespace

Task<> Mcp(Call* call) {
  const http::HttpRequest& request = call->request();
  mcp::Headers headers{std::string(request.Get("mcp-protocol-version")), std::string(request.Get("mcp-method")),
                       std::string(request.Get("mcp-name"))};
  SB_CO_TRY(mcp::Connection connection, MakeConnection(*call));
  SB_CO_TRY(std::string text, co_await call->Body());
  wire::JsonLimits limits;
  limits.bytes = kMaxJsonBody;
  auto value = wire::ParseJson(text, limits);
  json::value id;
  if (!value) {
    mcp::RpcError error{mcp::kParseError, value.error().message, std::nullopt};
    co_return co_await Refuse(call, std::move(id), std::move(error));
  }
  if (!headers.version.empty() && !mcp::IsKnownVersion(headers.version)) {
    id = mcp::ReadMessage(*value, headers).id;
    mcp::RpcError error = mcp::UnsupportedVersion(headers.version);
    co_return co_await Refuse(call, std::move(id), std::move(error));
  }
  if (const json::array* batch = value->if_array())
    co_return co_await ServeBatch(call, &connection, batch, std::move(headers));
  mcp::Message message = mcp::ReadMessage(*value, headers);
  if (message.error) {
    id = message.id;
    mcp::RpcError error = *message.error;
    co_return co_await Refuse(call, std::move(id), std::move(error));
  }
  if (message.method == "notifications/cancelled")
    call->mcp_calls->Cancel(KeyOf(*call, message.params.if_contains("requestId")));
  if (message.kind != mcp::Kind::kRequest) co_return co_await Accepted(call);
  if (auto allowed = mcp::CheckAllowed(connection, message); !allowed) {
    id = message.id;
    mcp::RpcError error{mcp::kInvalidRequest, allowed.error().message, std::nullopt};
    co_return co_await Refuse(call, std::move(id), std::move(error), 403);
  }
  co_return co_await ServeOne(call, &connection, std::move(message));
}

}  // namespace sandbar::api
