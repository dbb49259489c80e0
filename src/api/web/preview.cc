#include "api/web/preview.h"

#include <algorithm>

#include "api/api.h"
#include "api/errors.h"
#include "api/web/preview_secrets.h"
#include "api/web/web_guard.h"
#include "sandbox/ports/routes.h"
#include "wire/html.h"
#include "wire/text.h"
#include "wire/url.h"

namespace sandbar::api {
namespace {

constexpr std::string_view kTokenParameter = "sandbar_token";
constexpr std::string_view kTokenHeader = "x-sandbar-preview-token";
constexpr std::string_view kTokenCookie = "sandbar_preview_token";

constexpr std::chrono::seconds kRecheck{10};

bool Under(std::string_view host, std::string_view suffix) {
  host = host.substr(0, host.rfind(':'));
  return host.size() > suffix.size() && wire::EqualsIgnoreCase(host.substr(host.size() - suffix.size()), suffix);
}

http::HttpResponse Refusal(const http::HttpRequest& request, int status, std::string_view code,
                           const std::string& message) {
  http::HttpResponse response;
  response.status = status;
  response.headers = SecurityHeaders();
  response.body = ErrorBody(code, message);
  // People see these in their browser's window.
  if (request.Get("accept").contains("text/html")) {
    response.content_type = "text/html; charset=utf-8";
    response.body = "<!doctype html><title>" + std::string(code) + "</title><h1>" + std::string(code) + "</h1><p>" +
                    wire::EscapeHtml(message) + "</p>\n";
  }
  return response;
}

// What went wrong between here and the guest's server, in the protocol's words.
http::HttpResponse Explain(const http::HttpRequest& request, const Error& error, int port) {
  const std::string where = "port " + std::to_string(port) + " of the sandbox";
  switch (error.code) {
    case Code::kNotFound:
      return Refusal(request, 404, "SANDBOX_NOT_FOUND", "there is no sandbox behind this name");
    case Code::kStopped:
    case Code::kStopping:
      return Refusal(request, 410, "SANDBOX_STOPPED", "the sandbox behind this name has stopped");
    case Code::kUnavailable:
      return Refusal(request, 502, "SANDBOX_NOT_LISTENING",
                     "nothing listens on " + where + " yet: start a server there, on 127.0.0.1, ::1 or any address");
    case Code::kTimeout:
      return Refusal(request, 504, "SANDBOX_TIMEOUT", "the server on " + where + " does not answer");
    case Code::kClosed:
    case Code::kIo:
    case Code::kProtocol:
      return Refusal(request, 502, "SANDBOX_BAD_ANSWER",
                     "the server on " + where + " gave no proper HTTP answer: " + error.message);
    default:
      return ErrorResponse(error);
  }
}

// "a=1; b=2" without one cookie; its value goes to *value.
std::string TakeCookie(std::string_view cookies, std::string_view name, std::string* value) {
  std::string out;
  while (!cookies.empty()) {
    const size_t end = std::min(cookies.find(';'), cookies.size());
    const std::string_view pair = wire::Trim(cookies.substr(0, end));
    const size_t equals = pair.find('=');
    if (equals != std::string_view::npos && pair.substr(0, equals) == name) {
      *value = pair.substr(equals + 1);
    } else if (!pair.empty()) {
      out += (out.empty() ? "" : "; ") + std::string(pair);
    }
    cookies.remove_prefix(std::min(end + 1, cookies.size()));
  }
  return out;
}

std::string PresentedToken(const http::HttpRequest& request) {
  if (request.Has(kTokenHeader)) return std::string(request.Get(kTokenHeader));
  std::string token;
  for (const http::Header& h : request.headers)
    if (wire::EqualsIgnoreCase(h.name, "cookie")) TakeCookie(h.value, kTokenCookie, &token);
  return token;
}

}  // namespace

PreviewUrls PreviewUrlsOf(const ApiConfig& config) {
  bool tls = config.tls;
  uint16_t port = config.port;
  // Behind a proxy that publishes us, previews of a domain of the operator's are published there too.
  auto published = wire::ParseUrl(config.public_url);
  if (published && config.preview_domain != "localhost") {
    tls = published->scheme == "https";
    port = published->port;
  }
  PreviewUrls urls{tls ? "https://" : "http://", "." + config.preview_domain};
  if (port != (tls ? 443 : 80)) urls.after += ":" + std::to_string(port);
  return urls;
}

std::string TakeToken(std::string_view target, std::string* token) {
  const size_t mark = target.find('?');
  if (mark == std::string_view::npos) return std::string(target);
  std::string out(target.substr(0, mark));
  std::string_view query = target.substr(mark + 1);
  char separator = '?';
  while (!query.empty()) {
    const size_t end = std::min(query.find('&'), query.size());
    const std::string_view pair = query.substr(0, end);
    const size_t equals = std::min(pair.find('='), pair.size());
    if (pair.substr(0, equals) == kTokenParameter) {
      *token = pair.substr(std::min(equals + 1, pair.size()));
    } else {
      out += separator + std::string(pair);
      separator = '&';
    }
    query.remove_prefix(std::min(end + 1, query.size()));
  }
  return out;
}

// Counts a request of a route for as long as it is under way.
class Previews::Place {
 public:
  Place(Previews* owner, std::string label) : owner_(owner), label_(std::move(label)) {
    full_ = ++owner_->open_[label_] > kPerRoute;
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
  ~Place() {
    if (--owner_->open_[label_] == 0) owner_->open_.erase(label_);
  }
  bool full() const { return full_; }

 private:
  Previews* owner_;
  std::string label_;
  bool full_ = false;
};

std::string Previews::Scheme() const {
  return PreviewUrlsOf(*config_).before == "https://" ? "https" : "http";
}

Task<> Previews::Serve(http::HttpExchange* x, std::string label) {
  const http::HttpRequest& request = x->request();
  auto target = co_await domain_->ports->FindRoute(std::move(label));
  if (!target) {
    http::HttpResponse none = Explain(request, target.error(), 0);
    co_return co_await x->Respond(std::move(none));
  }
  Place of_route(this, target->route.subdomain);
  Result<Shares::Place> share = Fail(Code::kTooMany, "this preview has too many requests under way");
  if (!of_route.full()) share = shares_.Take(target->team + "/" + target->project, target->sandbox);
  if (!share) {
    http::HttpResponse full = Refusal(request, 429, "too_many_requests", share.error().message);
    co_return co_await x->Respond(std::move(full));
  }
  co_return co_await ServeRoute(x, *std::move(target));
}

Task<> Previews::ServeRoute(http::HttpExchange* x, sandbox::RouteTarget target) {
  const http::HttpRequest& request = x->request();
  std::string token;
  std::string rest = TakeToken(request.target, &token);
  if (!target.route.token.empty() && !token.empty() && sandbox::RouteTokenMatches(target.route, token)) {
    // Out of the address bar, the history and the Referer, into a cookie that only this host gets.
    http::HttpResponse move = Refusal(request, 303, "preview_token_accepted", "the token was taken");
    const std::string scheme = Scheme();
    move.headers.push_back({"Location", scheme + "://" + std::string(request.Get("host")) + rest});
    move.headers.push_back({"Set-Cookie", std::string(kTokenCookie) + "=" + token + "; Path=/; HttpOnly; SameSite=Lax" +
                                              (scheme == "https" ? "; Secure" : "")});
    co_return co_await x->Respond(std::move(move));
  }
  if (!target.route.token.empty() && !sandbox::RouteTokenMatches(target.route, PresentedToken(request))) {
    http::HttpResponse refused = Refusal(request, 401, "preview_token_required",
                                         "this preview needs its token: open it with ?sandbar_token=… once, or send "
                                         "the header X-Sandbar-Preview-Token");
    co_return co_await x->Respond(std::move(refused));
  }
  const int port = target.route.port;
  auto done = co_await Forward(x, std::move(target));
  if (done || x->started() || done.error().code == Code::kCancelled) co_return done;
  http::HttpResponse failed = Explain(request, done.error(), port);
  co_return co_await x->Respond(std::move(failed));
}

Task<> Previews::Forward(http::HttpExchange* x, sandbox::RouteTarget target) {
  const http::HttpRequest& asked = x->request();
  sandbox::Scope any;
  any.any_team = any.any_project = true;
  const auto in_use = domain_->sessions->Use(any, target.session);
  SB_CO_TRY(auto guest, co_await domain_->ports->Dial(std::move(any), target.session, target.route.port));
  ingress::IngressRequest request;
  std::string token;
  PreviewSecrets secrets(domain_->keys, config_->jwt_key, &target.route);
  std::string target_without = TakeToken(asked.target, &token);
  SB_CO_TRY(request.target, co_await secrets.Target(std::move(target_without)));
  request.public_host = asked.Get("host");
  request.host = Under(request.public_host, ".localhost") ? request.public_host : target.route.subdomain + ".localhost";
  request.client = AddressOf(x->peer());
  request.scheme = Scheme();
  request.traffic = guest.traffic;
  SB_CO_TRY(request.headers, co_await secrets.Headers(&asked));
  std::erase_if(request.headers, [](const http::Header& h) { return wire::EqualsIgnoreCase(h.name, kTokenHeader); });
  for (http::Header& h : request.headers)
    if (wire::EqualsIgnoreCase(h.name, "cookie")) h.value = TakeCookie(h.value, kTokenCookie, &token);
  std::erase_if(request.headers,
                [](const http::Header& h) { return h.value.empty() && wire::EqualsIgnoreCase(h.name, "cookie"); });
  using namespace asio::experimental::awaitable_operators;
  auto proxy = ingress::ProxyToGuest(x, std::move(guest.fd), std::move(request), limits);
  auto withdrawn = AwaitWithdrawal(std::move(target.route));
  auto first = co_await (std::move(proxy) || std::move(withdrawn));
  if (first.index() == 1) co_return Fail(Code::kClosed, "the route was withdrawn");
  co_return std::get<0>(std::move(first));
}

// Ends when the route is gone or asks for another token: what is open must not outlive that by much.
Task<> Previews::AwaitWithdrawal(store::PortRoute route) {
  while (true) {
    SB_CO_TRYV(co_await Sleep(kRecheck));
    auto now = co_await domain_->ports->FindRoute(route.subdomain);
    if (now && now->route != route) co_return Result<>{};
    if (!now && now.error().code == Code::kNotFound) co_return Result<>{};
  }
}

}  // namespace sandbar::api
