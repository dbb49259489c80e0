// Keys: who may call this server. The answer that makes a key shows its secret; no other answer does.
#include <algorithm>
#include <boost/json.hpp>

#include "api/auth.h"
#include "api/call.h"
#include "api/handlers.h"
#include "api/native/key_bodies.h"
#include "base/ids.h"
#include "base/log.h"
#include "wire/json_decode.h"

namespace sandbar::api {
namespace {

namespace json = boost::json;

struct KeyBody : GrantBody {
  std::string name;
  void Check(wire::JsonIssues& issues) const {
    GrantBody::Check(issues);
    const bool blank = name.empty() || name.front() == ' ' || name.back() == ' ';
    if (blank || name.size() > kLongestKeyName || !std::ranges::all_of(name, IsKeyNameChar))
      issues.Add("name", "must be 1 to 64 characters: letters, digits, . _ - @ : / and spaces inside");
  }
};
BOOST_DESCRIBE_STRUCT(KeyBody, (), (name, role, project, expires_in))

// The one answer that shows a secret.
Task<> ReplyMade(Call* call, const sandbox::NewKey* made) {
  json::object answer{{"key", KeyJson(made->key)}, {"secret", made->secret}};
  co_return co_await call->Reply(std::move(answer), 201);
}

}  // namespace

Task<> NativeCreateKey(Call* call) {
  SB_CO_TRY(std::string text, co_await call->Body());
  SB_CO_TRY(KeyBody body, wire::DecodeJson<KeyBody>(text));
  sandbox::KeySpec spec;
  spec.name = std::move(body.name);
  spec.role = body.role.value_or(store::KeyRole::kOperator);
  spec.project = body.Project();
  spec.expires_in_ms = body.expires_in;
  auto made = co_await call->domain->keys->Create(call->scope, std::move(spec));
  if (!made) co_return std::unexpected(std::move(made).error());
  log::Info("key {} ({}) made by {}", made->key.id, store::KeyRoleName(made->key.role), made->key.made_by);
  co_return co_await ReplyMade(call, &*made);
}

Task<> NativeRotateKey(Call* call) {
  std::string id = call->Param("key");
  auto made = co_await call->domain->keys->Rotate(call->scope, id);
  if (!made) co_return std::unexpected(std::move(made).error());
  log::Info("key {} replaced by {}, asked by {}", id, made->key.id, call->caller().key_id);
  co_return co_await ReplyMade(call, &*made);
}

Task<> NativeListKeys(Call* call) {
  const bool all = call->Flag("all");
  json::array rows;
  for (const store::Key& key : call->domain->keys->List(call->scope))
    if (all || StateOf(key, NowMs()) == "active") rows.emplace_back(KeyJson(key));
  json::object answer{{"keys", std::move(rows)}};
  co_return co_await call->Reply(std::move(answer));
}

Task<> NativeRevokeKey(Call* call) {
  std::string id = call->Param("key");
  auto revoked = co_await call->domain->keys->Revoke(call->scope, std::move(id));
  if (!revoked) co_return std::unexpected(std::move(revoked).error());
  log::Info("key {} revoked by {}", revoked->id, call->caller().key_id);
  json::object answer{{"key", KeyJson(*revoked)}};
  co_return co_await call->Reply(std::move(answer));
}

}  // namespace sandbar::api
