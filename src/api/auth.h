// Who is asking: bearer tokens and what they may act on.
//
// Two kinds of bearer. Opaque random tokens are looked up by the domain (hashed, constant time). A value of three
// dotted parts is a JWT of our own: HS256 with the server's key and nothing else, typ JWT, audience "sandbar", exp
// required. SDK programs get JWTs through VERCEL_OIDC_TOKEN only, because the SDK reads team and project from the
// claims and rewrites explicit credentials that look like one.
//
// Pure functions; the key is passed in. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "http/server.h"
#include "sandbox/scope.h"
#include "store/records.h"

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
};

// Signs claims with `key` (32 bytes or more). Used by `sandbar env` and /sdk/env.sh.
std::string MintJwt(std::string_view key, const JwtClaims& claims, int64_t now_ms);
// Everything that is wrong with a token is the same kUnauthenticated, so that nothing can be probed.
Result<JwtClaims> VerifyJwt(std::string_view key, std::string_view token, int64_t now_ms);
bool LooksLikeJwt(std::string_view token);
// Whether the server's key has signed it, whatever it says and however old it is.
bool SignedByUs(std::string_view key, std::string_view token);

// The credential of an Authorization header; kUnauthenticated when absent, repeated or not a well-formed bearer.
Result<std::string> BearerOf(const http::HttpRequest& request);

// What a request asked to act on; empty: it did not say.
struct Wanted {
  std::string team;
  std::string project;
};

// Combines a token's scope ("*": any) with what the request named. kForbidden when the token is bound elsewhere,
// kBadRequest for ids that cannot be.
Result<sandbox::Scope> ResolveScope(const store::Token& token, const Wanted& wanted);

}  // namespace sandbar::api
