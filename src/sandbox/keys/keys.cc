#include "sandbox/keys/keys.h"

#include <algorithm>

#include "base/ids.h"

namespace sandbar::sandbox {
namespace {

bool Covers(const std::string& bound, const std::string& id) {
  return bound == "*" || bound == id;
}

// The earlier of two ends; absent is never.
std::optional<int64_t> Earlier(std::optional<int64_t> a, std::optional<int64_t> b) {
  if (a && b) return std::min(*a, *b);
  return a ? a : b;
}

}  // namespace

Result<Identity> Keys::Recall(const Principal& then) {
  SB_TRY(Identity who, Find(then.key_id));
  Principal& now = who.principal;
  const bool ended = then.expires_at_ms && *then.expires_at_ms <= NowMs();
  if (ended || !Covers(now.team, then.team) || !Covers(now.project, then.project))
    return Fail(Code::kUnauthenticated, "the token is not valid");
  now.role = std::min(now.role, then.role);
  now.team = then.team;
  now.project = then.project;
  now.expires_at_ms = Earlier(now.expires_at_ms, then.expires_at_ms);
  now.derived = true;
  who.ends_at_ms = Earlier(who.ends_at_ms, then.expires_at_ms);
  return who;
}

}  // namespace sandbar::sandbox
