// Logins that wait for approval: who asks, and the decision. Whoever approves gives the program a key of its own, with
// no more role, scope or life than the approver's.
#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>

#include "api/call.h"
#include "api/device_logins.h"
#include "api/handlers.h"
#include "api/native/key_bodies.h"
#include "base/ids.h"
#include "base/log.h"

namespace sandbar::api {
namespace {

namespace json = boost::json;

constexpr int64_t kDefaultLifeMs = 30LL * 24 * 3600 * 1000;

json::object LoginJson(const LoginRequest& login) {
  return {{"client", login.client}, {"address", login.address}, {"expiresIn", login.left.count() * 1000}};
}

Result<LoginRequest> Find(Call* call) {
  return call->device_logins->Find(call->Param("code"), call->caller().key_id);
}

// The time that the program gets when the approver does not say: 30 days, or the rest of the approver's own.
int64_t DefaultLife(const sandbox::Principal& approver) {
  if (!approver.expires_at_ms) return kDefaultLifeMs;
  return std::clamp<int64_t>(*approver.expires_at_ms - NowMs(), 1, kDefaultLifeMs);
}

std::unexpected<Error> Decided() {
  return Fail(Code::kConflict, "this login was decided meanwhile");
}

}  // namespace

Task<> NativeGetLogin(Call* call) {
  SB_CO_TRY(LoginRequest login, Find(call));
  json::object answer{{"login", LoginJson(login)}};
  co_return co_await call->Reply(std::move(answer));
}

Task<> NativeApproveLogin(Call* call) {
  SB_CO_TRY(std::string text, co_await call->Body());
  GrantBody body;
  if (!text.empty()) {
    SB_CO_TRY(body, wire::DecodeJson<GrantBody>(text));
  }
  SB_CO_TRY(LoginRequest login, Find(call));
  sandbox::KeySpec spec;
  spec.name = ("login: " + login.client).substr(0, kLongestKeyName);
  spec.role = body.role.value_or(store::KeyRole::kOperator);
  spec.project = body.Project();
  spec.expires_in_ms = body.expires_in.value_or(DefaultLife(call->caller()));
  spec.login = true;
  auto made = co_await call->domain->keys->Create(call->scope, std::move(spec));
  if (!made) co_return std::unexpected(std::move(made).error());
  // Whatever happens from here on, nobody but the program that waits ever learns the secret.
  if (!call->device_logins->Approve(call->Param("code"), {made->secret, made->key.expires_at})) {
    auto dropped = co_await call->domain->keys->Logout(made->secret);
    if (!dropped) co_return std::unexpected(std::move(dropped).error());
    co_return Decided();
  }
  log::Info("login of {} from {} approved by {}: key {}", login.client, login.address, call->caller().key_id,
            made->key.id);
  json::object answer{{"login", LoginJson(login)}, {"key", KeyJson(made->key)}};
  co_return co_await call->Reply(std::move(answer));
}

Task<> NativeDenyLogin(Call* call) {
  SB_CO_TRY(LoginRequest login, Find(call));
  if (!call->device_logins->Deny(call->Param("code"))) co_return Decided();
  log::Info("login of {} from {} denied by {}", login.client, login.address, call->caller().key_id);
  json::object answer{{"login", LoginJson(login)}};
  co_return co_await call->Reply(std::move(answer));
}

}  // namespace sandbar::api
