// Who is asking: bearer tokens and what they may act on.
//
// Two kinds of bearer. Secrets of keys are looked up by the domain (sandbox/keys/keys.h). A value of three dotted parts
// is a JWT of our own: HS256 with the server's key and nothing else, typ JWT, audience "sandbar", exp required. SDK
// programs get JWTs through VERCEL_OIDC_TOKEN only, because the SDK reads team and project from the claims and rewrites
// explicit credentials that look like one. A JWT names the key that it was made for, and ends with that key.
//
// Pure functions; the key is passed in. Any thread, but for IdentifyJwt: the loop.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "http/server.h"
#include "sandbox/keys/keys.h"
#include "sandbox/scope.h"

namespace sandbar::api {

inline constexpr std::string_view kDefaultTeam = "team_sandbar";
inline constexpr std::string_view kDefaultProject = "prj_sandbar";
// The name under which the Vercel CLI looks for a project when none was chosen; it means our default project.
inline constexpr std::string_view kCliDefaultProject = "vercel-sandbox-default-project";

inline constexpr int64_t kLeewayMs = 60'000;  // for clocks that differ: a JWT is taken for so long after its end

struct JwtClaims {
  std::string team;           // owner_id
  std::string project;        // project_id
  int64_t expires_at_ms = 0;  // exp, whole seconds on the wire
  std::string key;            // the id of the key that it was made for; empty: made by a release that named none
  // At most what the key may do. JWTs of releases that named no key could do everything that needs no admin today.
  sandbox::KeyRole role = sandbox::KeyRole::kOperator;
};

// Signs claims with `key` (32 bytes or more). Used by `sandbar env` and /sdk/env.sh.
std::string MintJwt(std::string_view key, const JwtClaims& claims, int64_t now_ms);
// Everything that is wrong with a token is the same kUnauthenticated, so that nothing can be probed.
Result<JwtClaims> VerifyJwt(std::string_view key, std::string_view token, int64_t now_ms);
bool LooksLikeJwt(std::string_view token);
// The caller with a JWT: no more role, scope or life than its key has now. A JWT that names no key belongs to the
// server's oldest key. kUnauthenticated when the key was revoked or has expired.
Result<sandbox::Identity> IdentifyJwt(sandbox::Keys& keys, const JwtClaims& claims);
// Whether the server's key has signed it, whatever it says and however old it is.
bool SignedByUs(std::string_view key, std::string_view token);

// The credential of an Authorization header; kUnauthenticated when absent, repeated or not a well-formed bearer.
Result<std::string> BearerOf(const http::HttpRequest& request);

// What a request asked to act on; empty: it did not say.
struct Wanted {
  std::string team;
  std::string project;
};

// An id that a project or a team can have.
bool PlausibleId(std::string_view id);

// Combines the caller's scope ("*": any) with what the request named. kForbidden when the caller is bound elsewhere,
// kBadRequest for ids that cannot be.
Result<sandbox::Scope> ResolveScope(const sandbox::Principal& caller, const Wanted& wanted);

}  // namespace sandbar::api
