#include "api/api.h"

#include <charconv>

#include "api/auth.h"
#include "api/call.h"
#include "api/client_mistakes.h"
#include "api/create_answers.h"
#include "api/device_logins.h"
#include "api/errors.h"
#include "api/expiring_exchange.h"
#include "api/fresh_shells.h"
#include "api/mcp/calls.h"
#include "api/openapi.h"
#include "api/shares.h"
#include "api/terminal_tickets.h"
#include "api/web/preview.h"
#include "api/web/web_guard.h"
#include "assets/assets.h"
#include "base/ids.h"
#include "mcp/cells.h"
#include "wire/url.h"

namespace sandbar::api {
namespace {

// Calls of clients with a token that are under way: streams, waits, uploads. With those of previews they are fewer than
// the connections of a server, so that a project that keeps all of its own open keeps nobody else out.
constexpr size_t kCallsInAll = 2304;
constexpr size_t kCallsWeight = 2;
static_assert(kCallsInAll + Previews::kInAll <= http::kMaxConnections - 256);

std::unique_ptr<WebGuard> MakeGuard(const ApiConfig& config) {
  WebGuardConfig guard;
  guard.host_names = config.host_names;
  guard.port = config.port;
  guard.tls = config.tls;
  guard.public_url = config.public_url;
  guard.preview_domain = config.preview_domain;
  return std::make_unique<WebGuard>(guard);
}

http::HttpResponse WrongMethod(const Match& match) {
  http::HttpResponse response = ErrorResponse(Error{Code::kMethodNotAllowed, "this path has no such method"});
  std::string allow;
  for (std::string_view method : match.allowed) allow += (allow.empty() ? "" : ", ") + std::string(method);
  response.headers.push_back({"Allow", allow});
  return response;
}

int VersionNumber(std::string_view version) {
  int n = 0;
  if (version.size() > 1) std::from_chars(version.data() + 1, version.data() + version.size(), n);
  return n;
}

}  // namespace

Api::Api(const sandbox::Roles* domain, images::Catalog* catalog, ApiConfig config)
    : domain_(domain),
      catalog_(catalog),
      config_(std::move(config)),
      guard_(MakeGuard(config_)),
      previews_(std::make_unique<Previews>(domain_, &config_)),
      shares_(std::make_unique<Shares>(kCallsInAll, kCallsWeight)),
      create_answers_(std::make_unique<CreateAnswers>()),
      fresh_shells_(std::make_unique<FreshShells>()),
      terminal_tickets_(std::make_unique<TerminalTickets>()),
      device_logins_(std::make_unique<DeviceLogins>()),
      mcp_calls_(std::make_unique<McpCalls>()) {
  SB_CHECK(config_.jwt_key.size() >= 32);
  config_.openapi = OpenApiText(RouteTable(), assets::kOpenApiJson, config_.version);
}

Api::~Api() = default;

asio::awaitable<void> Api::Close() {
  if (cells_) co_await cells_->Close();
}

void Api::SetPort(uint16_t port) {
  config_.port = port;
  guard_ = MakeGuard(config_);
}

// For links in answers. The Host was checked, so it is one of our own names.
std::string Api::BaseUrl(const http::HttpRequest& request) const {
  std::string url = config_.public_url;
  if (url.empty()) url = (config_.tls ? "https://" : "http://") + std::string(request.Get("host"));
  while (url.ends_with('/')) url.pop_back();
  return url;
}

std::vector<RouteInfo> Api::Routes() {
  return ExpandRoutes(RouteTable());
}

http::HttpResponse Api::OnError(const Error& error) const {
  // Here the peer is the client: what is a fault of ours inside a handler is one of its request outside of it.
  Error shown = error;
  if (shown.code == Code::kProtocol) shown.code = Code::kBadRequest;
  http::HttpResponse response = ErrorResponse(shown);
  if (shown.code == Code::kTimeout) response.status = 408;
  return response;
}

Task<> Api::Authenticate(Call* call) {
  SB_CO_TRY(std::string bearer, BearerOf(call->request()));
  sandbox::Identity who;
  if (LooksLikeJwt(bearer)) {
    SB_CO_TRY(JwtClaims claims, VerifyJwt(config_.jwt_key, bearer, NowMs()));
    SB_CO_TRY(who, IdentifyJwt(*domain_->keys, claims));
  } else {
    SB_CO_TRY(who, co_await domain_->keys->Identify(std::move(bearer)));
  }
  call->credential.emplace(who);
  call->exchange->Vouch();
  call->wanted.team = call->query.Get("teamId").value_or("");
  call->wanted.project = call->query.Get("projectId").value_or(call->query.Get("project").value_or(""));
  SB_CO_TRY(call->scope, ResolveScope(who.principal, call->wanted));
  co_return Result<>{};
}

Task<> Api::Dispatch(http::HttpExchange* exchange) {
  const http::HttpRequest& request = exchange->request();
  const bool loopback = CameOverLoopback(exchange->peer());
  if (guard_->Classify(request.Get("host"), loopback) == WebGuard::Place::kPreview) {
    SB_CO_TRYV(WebGuard::CheckPort(request.Get("host")));
    std::string label = guard_->PreviewLabel(request.Get("host"));
    co_return co_await previews_->Serve(exchange, std::move(label));
  }
  SB_CO_TRYV(guard_->Check(request, loopback));
  SB_CO_TRYV(CheckProtocol(request));
  Match match = MatchRoute(RouteTable(), request.method, request.path);
  if (match.route == nullptr) {
    if (match.allowed.empty()) co_return Fail(Code::kNotFound, "there is nothing at this path");
    http::HttpResponse wrong = WrongMethod(match);
    co_return co_await exchange->Respond(std::move(wrong));
  }
  Call call;
  call.exchange = exchange;
  call.domain = domain_;
  call.catalog = catalog_;
  call.config = &config_;
  call.create_answers = create_answers_.get();
  call.fresh_shells = fresh_shells_.get();
  call.terminal_tickets = terminal_tickets_.get();
  call.device_logins = device_logins_.get();
  call.shares = shares_.get();
  auto ex = co_await asio::this_coro::executor;
  if (!cells_) cells_ = std::make_unique<mcp::Cells>(ex);
  call.cells = cells_.get();
  call.mcp_calls = mcp_calls_.get();
  call.base_url = BaseUrl(request);
  call.preview_urls = PreviewUrlsOf(config_);
  call.params = std::move(match.params);
  call.version = VersionNumber(match.version);
  SB_CO_TRY(call.query, wire::ParseQuery(request.query));
  std::optional<Shares::Place> place;
  if (const auto role = RoleOf(match.route->access)) {
    SB_CO_TRYV(co_await Authenticate(&call));
    SB_CO_TRYV(call.Need(*role));
    SB_CO_TRY(auto taken, shares_->Take(call.ShareName(), ""));
    place.emplace(std::move(taken));
  }
  // A session that is talked to is not idle, however long the talk is: a log that is followed, a forwarded port.
  std::shared_ptr<void> in_use;
  if (auto it = call.params.find("session"); it != call.params.end())
    in_use = domain_->sessions->Use(call.scope, it->second);
  call.first_use = fresh_shells_->FirstUse(call.params);
  std::optional<ExpiringExchange> expiring;
  if (call.credential) call.exchange = &expiring.emplace(exchange, &*call.credential);
  auto done = co_await match.route->handler(&call);
  const bool cut = !done && (done.error().code == Code::kClosed || done.error().code == Code::kUnauthenticated);
  if (cut && expiring && expiring->ended()) {
    std::string last_words = call.last_words ? call.last_words(call.credential->Why()) : "";
    co_return co_await expiring->End(std::move(last_words));
  }
  if (!done && done.error().code == Code::kNotFound) done.error().message += UnsetValueHint(call.params);
  co_return done;
}

Task<> Api::Handle(http::HttpExchange* exchange) {
  Result<> done;
  std::string thrown;
  try {
    done = co_await Dispatch(exchange);
  } catch (const std::exception& e) {
    thrown = e.what();
    done = Fail(Code::kInternal, "exception in a handler: " + thrown);
  }
  // Asio throws at the next await of a cancelled coroutine; any other exception is a bug of ours.
  auto state = co_await asio::this_coro::cancellation_state;
  if (state.cancelled() != asio::cancellation_type::none) co_return Fail(Code::kCancelled, "cancelled");
  if (!thrown.empty()) SB_BUG(done.error().message);
  if (done || exchange->started()) co_return done;
  http::HttpResponse response = ErrorResponse(done.error());
  co_return co_await exchange->Respond(std::move(response));
}

}  // namespace sandbar::api
