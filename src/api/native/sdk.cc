// The SDK's door for a machine that only has this server's address and a token:
//   eval "$(curl -fsS -H "Authorization: Bearer $SANDBAR_TOKEN" $SANDBAR_URL/sdk/env.sh)"
// puts the preload hook into the user's cache and sets the environment, so that unmodified programs come here.
#include <algorithm>

#include "api/api.h"
#include "api/auth.h"
#include "api/call.h"
#include "api/handlers.h"
#include "assets/assets.h"
#include "base/ids.h"
#include "crypto/digest.h"
#include "wire/sdk_variables.h"

namespace sandbar::api {
namespace {

// The SDK asks the vendor for a new token when the old one is about to end; a shell's environment should outlive that.
constexpr int64_t kEnvTokenMs = 30LL * 24 * 3600 * 1000;

std::string ShellQuote(std::string_view text) {
  std::string out = "'";
  for (char c : text) {
    if (c == '\'') {
      out += "'\\''";
    } else {
      out += c;
    }
  }
  return out + "'";
}

std::string ShortDigest(std::string_view text) {
  return crypto::Sha256Hex(text).substr(0, 16);
}

// A line that is not in the text, to end a here-document with.
std::string Delimiter(std::string_view text) {
  std::string mark = "SANDBAR_REGISTER_END";
  while (text.contains(mark)) mark += "_";
  return mark;
}

// What the caller wants set besides the address and the token, as `sandbar env` has it.
Result<wire::SdkSettings> ReadWishes(const wire::Query& query) {
  wire::SdkSettings out;
  const std::string_view aliases = query.Get("aliases").value_or("1");
  if (aliases != "0" && aliases != "1") return Fail(Code::kBadRequest, "`aliases` can be 0 or 1");
  out.aliases = aliases == "1";
  out.default_net = query.Get("defaultNet").value_or("");
  if (!out.default_net.empty() && out.default_net != "deny-all" && out.default_net != "allow-all")
    return Fail(Code::kBadRequest, "`defaultNet` can be deny-all or allow-all");
  return out;
}

std::string EnvScript(const std::string& hook, const wire::SdkSettings& settings) {
  std::string mark = Delimiter(hook);
  std::string out;
  for (const auto& [name, value] : wire::SdkVariables(settings))
    out += "export " + name + "=" + ShellQuote(value) + "\n";
  // Named by its content: two servers or two versions do not overwrite each other's hook.
  out += "sandbar_hook=\"${XDG_CACHE_HOME:-$HOME/.cache}/sandbar/register-" + ShortDigest(hook) + ".mjs\"\n";
  out += "mkdir -p \"${sandbar_hook%/*}\" && cat > \"$sandbar_hook\" <<'" + mark + "'\n";
  out += hook;
  if (!hook.ends_with('\n')) out += "\n";
  out += mark + "\n";
  out += "case \" ${NODE_OPTIONS:-} \" in\n  *\"$sandbar_hook\"*) ;;\n";
  out += "  *) export NODE_OPTIONS=\"${NODE_OPTIONS:+$NODE_OPTIONS }--import=\\\"file://$sandbar_hook\\\"\" ;;\nesac\n";
  out += "unset sandbar_hook\n";
  return out;
}

}  // namespace

Task<> SdkRegister(Call* call) {
  if (call->config->register_mjs.empty()) co_return Fail(Code::kNotFound, "this server has no SDK hook installed");
  std::string text = call->config->register_mjs;
  co_return co_await call->ReplyText(std::move(text), "text/javascript; charset=utf-8");
}

Task<> SdkEnv(Call* call) {
  if (call->config->register_mjs.empty()) co_return Fail(Code::kNotFound, "this server has no SDK hook installed");
  SB_CO_TRY(wire::SdkSettings settings, ReadWishes(call->query));
  int64_t now = NowMs();
  // Bound to what the caller's own token resolved to: it can hand on less, never more, and for no longer than it has.
  // Programs need no admin, and the variables end up in files and logs.
  const sandbox::Principal& caller = call->caller();
  const int64_t expires = std::min(now + kEnvTokenMs, caller.expires_at_ms.value_or(INT64_MAX));
  const sandbox::KeyRole role = std::min(caller.role, sandbox::KeyRole::kOperator);
  JwtClaims claims{call->scope.team, call->scope.project, expires, caller.key_id, role};
  settings.url = call->base_url;
  settings.token = MintJwt(call->config->jwt_key, claims, now);
  settings.team = call->scope.team;
  settings.project = call->scope.project;
  std::string script = EnvScript(call->config->register_mjs, settings);
  co_return co_await call->ReplyText(std::move(script), "text/x-shellscript; charset=utf-8");
}

Task<> SdkPython(Call* call) {
  std::string text(assets::kSandbarPy);
  co_return co_await call->ReplyText(std::move(text), "text/x-python; charset=utf-8");
}

// With this server's own address, so that its examples can be copied.
Task<> LlmsText(Call* call) {
  std::string text = assets::Guide(call->base_url);
  co_return co_await call->ReplyText(std::move(text), "text/plain; charset=utf-8");
}

Task<> OpenApi(Call* call) {
  std::string text = call->config->openapi;
  co_return co_await call->ReplyText(std::move(text), "application/json");
}

}  // namespace sandbar::api
