// Keys: who may call this server. The answer that makes a key shows its secret; no other answer does.
#include <algorithm>
#include <boost/json.hpp>

#include "api/auth.h"
#include "api/call.h"
#include "api/handlers.h"
#include "base/ids.h"
#include "base/log.h"
#include "wire/json_decode.h"

namespace sandbar::store {
BOOST_DESCRIBE_ENUM(KeyRole, kViewer, kOperator, kAdmin)
}  // namespace sandbar::store

namespace sandbar::api {
namespace {

namespace json = boost::json;

constexpr size_t kLongestName = 64;
constexpr int64_t kShortestLifeMs = 1000;
constexpr int64_t kLongestLifeMs = 3650LL * 24 * 3600 * 1000;

// Names end up in messages, logs and terminals.
bool IsNameChar(char c) {
  constexpr std::string_view kSigns = " ._-@:/";
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || kSigns.contains(c);
}

struct KeyBody {
  std::string name;
  std::optional<store::KeyRole> role;
  std::optional<std::string> project;
  std::optional<int64_t> expires_in;
  static constexpr wire::JsonAlias kJsonAliases[] = {{"projectId", "project"}};
  void Check(wire::JsonIssues& issues) const {
    const bool blank = name.empty() || name.front() == ' ' || name.back() == ' ';
    if (blank || name.size() > kLongestName || !std::ranges::all_of(name, IsNameChar))
      issues.Add("name", "must be 1 to 64 characters: letters, digits, . _ - @ : / and spaces inside");
    if (project && *project != "*" && !PlausibleId(*project))
      issues.Add("project", "must be the id of a project, or * for every project of the team");
    issues.Range("expiresIn", expires_in, kShortestLifeMs, kLongestLifeMs);
  }
};
BOOST_DESCRIBE_STRUCT(KeyBody, (), (name, role, project, expires_in))

std::string_view StateOf(const store::Key& key, int64_t now) {
  if (key.revoked_at) return "revoked";
  return key.expires_at && *key.expires_at <= now ? "expired" : "active";
}

json::object KeyJson(const store::Key& key) {
  json::object out{{"id", key.id},
                   {"name", key.name},
                   {"role", store::KeyRoleName(key.role)},
                   {"teamId", key.team},
                   {"projectId", key.project},
                   {"state", StateOf(key, NowMs())},
                   {"createdAt", key.created_at},
                   {"madeBy", key.made_by}};
  if (key.expires_at) out["expiresAt"] = *key.expires_at;
  if (key.revoked_at) out["revokedAt"] = *key.revoked_at;
  if (key.last_used_at) out["lastUsedAt"] = *key.last_used_at;
  return out;
}

// The one answer that shows a secret.
Task<> ReplyMade(Call* call, const sandbox::NewKey* made) {
  json::object answer{{"key", KeyJson(made->key)}, {"secret", made->secret}};
  co_return co_await call->Reply(std::move(answer), 201);
}

}  // namespace

Task<> NativeCreateKey(Call* call) {
  SB_CO_TRY(std::string text, co_await call->Body());
  SB_CO_TRY(KeyBody body, wire::DecodeJson<KeyBody>(text));
  sandbox::KeySpec spec{std::move(body.name), body.role.value_or(store::KeyRole::kOperator), body.project.value_or(""),
                        body.expires_in};
  if (spec.project == kCliDefaultProject) spec.project = kDefaultProject;
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
