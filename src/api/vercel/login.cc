// `sandbox login` and `logout` of the official CLI: OAuth's device flow (RFC 8628), its discovery, revocation (RFC
// 7009) and introspection. Bodies are forms, and errors are OAuth's own. The token that a login gets is a key of its
// own.
#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>

#include "api/call.h"
#include "api/device_logins.h"
#include "api/errors.h"
#include "api/handlers.h"
#include "api/web/web_guard.h"
#include "base/ids.h"
#include "wire/url.h"

namespace sandbar::api {
namespace {

namespace json = boost::json;

constexpr size_t kMaxForm = 16 << 10;
constexpr std::string_view kDeviceGrant = "urn:ietf:params:oauth:grant-type:device_code";
constexpr int64_t kNoEndSeconds = sandbox::kMaxKeyLifeMs / 1000;  // what clients are told of a key that has no end

Task<wire::Query> Form(Call* call) {
  SB_CO_TRY(std::string text, co_await call->exchange->ReadAll(kMaxForm));
  co_return wire::ParseQuery(text);
}

Task<> Refuse(Call* call, std::string_view error, std::string_view description, int status = 400) {
  json::object body{{"error", error}, {"error_description", description}};
  co_return co_await call->Reply(std::move(body), status);
}

}  // namespace

Task<> OAuthMetadata(Call* call) {
  const std::string& base = call->base_url;
  json::object body{{"issuer", base},
                    {"device_authorization_endpoint", base + "/x/v1/oauth/device"},
                    {"token_endpoint", base + "/x/v1/oauth/token"},
                    {"revocation_endpoint", base + "/x/v1/oauth/revoke"},
                    {"introspection_endpoint", base + "/x/v1/oauth/introspect"},
                    {"jwks_uri", base + "/.well-known/jwks"},
                    {"grant_types_supported", json::array{kDeviceGrant}}};
  co_return co_await call->Reply(std::move(body));
}

Task<> StartLogin(Call* call) {
  SB_CO_TRYV(co_await Form(call));
  auto started = call->device_logins->Start(call->request().Get("user-agent"), AddressOf(call->exchange->peer()));
  if (!started) co_return co_await Refuse(call, "slow_down", started.error().message, 429);
  const std::string page = call->base_url + "/login";
  json::object body{{"device_code", started->device_code},
                    {"user_code", started->user_code},
                    {"verification_uri", page},
                    {"verification_uri_complete", page + "?code=" + started->user_code},
                    {"expires_in", DeviceLogins::kLife.count()},
                    {"interval", DeviceLogins::kInterval.count()}};
  co_return co_await call->Reply(std::move(body));
}

Task<> PollLogin(Call* call) {
  SB_CO_TRY(wire::Query form, co_await Form(call));
  const std::string_view grant = form.Get("grant_type").value_or("");
  // Keys live as long as their approver said and are not renewed behind anybody's back.
  if (grant == "refresh_token")
    co_return co_await Refuse(call, "invalid_grant", "logins are not renewed here; log in again");
  if (grant != kDeviceGrant)
    co_return co_await Refuse(call, "unsupported_grant_type",
                              fmt::format("`grant_type` must be {}, which is a login with a code", kDeviceGrant));
  const LoginAnswer answer = call->device_logins->Poll(form.Get("device_code").value_or(""));
  switch (answer.state) {
    case LoginAnswer::State::kWaiting:
      co_return co_await Refuse(call, "authorization_pending", "nobody has approved this login yet");
    case LoginAnswer::State::kTooFast:
      co_return co_await Refuse(call, "slow_down", "ask at most every 5 seconds");
    case LoginAnswer::State::kDenied:
      co_return co_await Refuse(call, "access_denied", "this login was denied");
    case LoginAnswer::State::kUnknown:
      co_return co_await Refuse(call, "expired_token", "this login is unknown or too old; start another one");
    case LoginAnswer::State::kApproved:
      break;
  }
  const auto& end = answer.grant.expires_at_ms;
  json::object body{{"access_token", answer.grant.secret},
                    {"token_type", "Bearer"},
                    {"expires_in", end ? std::max<int64_t>((*end - NowMs()) / 1000, 0) : kNoEndSeconds}};
  co_return co_await call->Reply(std::move(body));
}

// RFC 7009: whatever the token is, the answer is the same.
Task<> Logout(Call* call) {
  SB_CO_TRY(wire::Query form, co_await Form(call));
  std::string token(form.Get("token").value_or(""));
  SB_CO_TRYV(co_await call->domain->keys->Logout(std::move(token)));
  json::object body;
  co_return co_await call->Reply(std::move(body));
}

Task<> IntrospectToken(Call* call) {
  SB_CO_TRY(wire::Query form, co_await Form(call));
  std::string token(form.Get("token").value_or(""));
  auto who = co_await call->domain->keys->Identify(std::move(token));
  json::object body{{"active", who.has_value()}};
  if (who) {
    body["client_id"] = "sandbar";
    body["session_id"] = who->principal.key_id;
  }
  co_return co_await call->Reply(std::move(body));
}

// Where `sandbox login` sends people. Whoever has a key approves with it at a terminal.
Task<> LoginPage(Call* call) {
  std::string code(call->query.Get("code").value_or(""));
  const bool plain = code.size() <= 16 && std::ranges::all_of(code, [](char c) {
                       return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '-';
                     });
  if (!plain || code.empty()) code = "CODE";
  std::string text = fmt::format(
      "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Approve a login</title>"
      "<h1>Approve a login</h1>"
      "<p>A program asks for a key to this Sandbar server. If you started it yourself, run this where you use the "
      "server, with the code that the program shows:</p>"
      "<pre>sandbar login approve {}</pre>"
      "<p>The program gets a key of its own, with no more rights and no longer life than yours. "
      "<code>sandbar key ls</code> lists it; revoking it, or the key that you approved with, ends it.</p>"
      "<p>If you did not start it, run <code>sandbar login deny {}</code>, or leave it: it ends after ten "
      "minutes.</p>\n",
      code, code);
  co_return co_await call->ReplyText(std::move(text), "text/html; charset=utf-8");
}

}  // namespace sandbar::api
