#include "api/native/key_bodies.h"

#include <boost/json.hpp>

#include "base/ids.h"

namespace sandbar::api {

std::string_view StateOf(const store::Key& key, int64_t now) {
  if (key.revoked_at) return "revoked";
  return key.expires_at && *key.expires_at <= now ? "expired" : "active";
}

boost::json::object KeyJson(const store::Key& key) {
  boost::json::object out{{"id", key.id},
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

}  // namespace sandbar::api
