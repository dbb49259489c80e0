#include "api/auth.h"

#include <algorithm>
#include <boost/json.hpp>

#include "base/base64.h"
#include "crypto/digest.h"
#include "crypto/jwt.h"
#include "wire/ndjson.h"
#include "wire/text.h"

namespace sandbar::api {
namespace {

namespace json = boost::json;

constexpr std::string_view kAudience = "sandbar";
constexpr size_t kMaxToken = 4096;
std::optional<json::object> DecodeObject(std::string_view part) {
  auto text = DecodeBase64Url(part);
  if (!text) return std::nullopt;
  boost::system::error_code ec;
  json::value value = json::parse(*text, ec);
  if (ec || !value.is_object()) return std::nullopt;
  return std::move(value.as_object());
}

std::string StringClaim(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(name);
  if (value == nullptr || !value->is_string()) return {};
  return std::string(value->as_string());
}

std::unexpected<Error> BadToken() {
  return Fail(Code::kUnauthenticated, "the token is not valid");
}

}  // namespace

// Ids come from clients and end up in rows and logs.
bool PlausibleId(std::string_view id) {
  return !id.empty() && id.size() <= 128 && std::ranges::all_of(id, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           c == '.';
  });
}

std::string MintJwt(std::string_view key, const JwtClaims& claims, int64_t now_ms) {
  SB_CHECK(key.size() >= 32);
  json::object header{{"alg", "HS256"}, {"typ", "JWT"}};
  json::object payload{{"iss", kAudience},        {"aud", kAudience},
                       {"owner_id", claims.team}, {"project_id", claims.project},
                       {"iat", now_ms / 1000},    {"exp", claims.expires_at_ms / 1000}};
  if (!claims.key.empty()) {
    payload["key"] = claims.key;
    payload["role"] = store::KeyRoleName(claims.role);
  }
  auto sign = [key](std::string_view text) { return crypto::HmacSha256(key, text); };
  return crypto::SignJwt(wire::ToAsciiJson(header), wire::ToAsciiJson(payload), sign);
}

Result<JwtClaims> VerifyJwt(std::string_view key, std::string_view token, int64_t now_ms) {
  if (key.size() < 32 || token.size() > kMaxToken || !LooksLikeJwt(token)) return BadToken();
  // Nothing of an unsigned token is parsed.
  if (!SignedByUs(key, token)) return BadToken();
  size_t first = token.find('.');
  size_t second = token.find('.', first + 1);
  auto header = DecodeObject(token.substr(0, first));
  auto payload = DecodeObject(token.substr(first + 1, second - first - 1));
  if (!header || !payload) return BadToken();
  if (StringClaim(*header, "alg") != "HS256" || StringClaim(*header, "typ") != "JWT" || header->contains("crit"))
    return BadToken();
  if (StringClaim(*payload, "aud") != kAudience) return BadToken();
  const json::value* exp = payload->if_contains("exp");
  if (exp == nullptr || !exp->is_int64()) return BadToken();
  int64_t seconds = exp->as_int64();
  if (seconds <= 0 || seconds > INT64_MAX / 2000) return BadToken();
  JwtClaims claims{StringClaim(*payload, "owner_id"), StringClaim(*payload, "project_id"), seconds * 1000};
  if (payload->contains("key") || payload->contains("role")) {
    claims.key = StringClaim(*payload, "key");
    auto role = store::KeyRoleFromName(StringClaim(*payload, "role"));
    if (claims.key.empty() || !role) return BadToken();
    claims.role = *role;
  }
  if (now_ms >= claims.expires_at_ms + kLeewayMs) return BadToken();
  // A JWT is always bound: "*" is no plausible id.
  if (!PlausibleId(claims.team) || !PlausibleId(claims.project)) return BadToken();
  return claims;
}

Result<sandbox::Identity> IdentifyJwt(sandbox::Keys& keys, const JwtClaims& claims) {
  // The leeway is for clients' clocks; a key ends by the server's own.
  sandbox::Principal then{claims.key, "", claims.role, claims.team, claims.project, claims.expires_at_ms + kLeewayMs};
  SB_TRY(sandbox::Identity who, keys.Recall(then));
  std::optional<int64_t>& expires = who.principal.expires_at_ms;
  expires = std::min(expires.value_or(INT64_MAX), claims.expires_at_ms);
  return who;
}

bool LooksLikeJwt(std::string_view token) {
  return std::ranges::count(token, '.') == 2;
}

bool SignedByUs(std::string_view key, std::string_view token) {
  if (!LooksLikeJwt(token)) return false;
  const size_t second = token.rfind('.');
  auto mac = DecodeBase64Url(token.substr(second + 1));
  const std::string expected = crypto::HmacSha256(key, token.substr(0, second));
  return mac && crypto::SameSecret(*mac, expected);
}

Result<std::string> BearerOf(const http::HttpRequest& request) {
  constexpr std::string_view kScheme = "bearer ";
  auto count = std::ranges::count_if(request.headers,
                                     [](const auto& h) { return wire::EqualsIgnoreCase(h.name, "authorization"); });
  if (count != 1) return Fail(Code::kUnauthenticated, "this needs one Authorization header: Bearer <token>");
  std::string_view value = request.Get("authorization");
  if (value.size() <= kScheme.size() || !wire::EqualsIgnoreCase(value.substr(0, kScheme.size()), kScheme))
    return BadToken();
  std::string_view token = value.substr(kScheme.size());
  bool plain = std::ranges::all_of(token, [](char c) { return c > 0x20 && c < 0x7F; });
  if (token.size() > kMaxToken || !plain) return BadToken();
  return std::string(token);
}

Result<sandbox::Scope> ResolveScope(const sandbox::Principal& caller, const Wanted& wanted) {
  sandbox::Scope scope;
  scope.caller = caller;
  scope.any_team = caller.team == "*";
  scope.any_project = caller.project == "*";
  std::string project = wanted.project == kCliDefaultProject ? std::string(kDefaultProject) : wanted.project;
  if (!wanted.team.empty() && !PlausibleId(wanted.team)) return Fail(Code::kBadRequest, "teamId is not an id");
  if (!project.empty() && !PlausibleId(project)) return Fail(Code::kBadRequest, "projectId is not an id or a name");

  scope.team = scope.any_team ? (wanted.team.empty() ? std::string(kDefaultTeam) : wanted.team) : caller.team;
  scope.project = scope.any_project ? (project.empty() ? std::string(kDefaultProject) : project) : caller.project;
  if (!wanted.team.empty() && wanted.team != scope.team)
    return Fail(Code::kForbidden, "the token does not belong to this team");
  if (!project.empty() && project != scope.project)
    return Fail(Code::kForbidden, "the token does not belong to this project");
  return scope;
}

}  // namespace sandbar::api
