// `sandbar key`: API keys of the server.
#include <fmt/format.h>

#include "base/ids.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "wire/ndjson.h"
#include "wire/url.h"

namespace sandbar::cli {
namespace {

constexpr char kPath[] = "/x/v1/keys";

std::string When(const json::object& key, std::string_view field, int64_t now) {
  int64_t at = Number(key, field);
  if (at == 0) return "-";
  // The last use is known to the hour, and no key is used before it is made.
  at = std::max(at, Number(key, "createdAt"));
  return at > now ? "in " + Age(at - now) : Age(now - at) + " ago";
}

}  // namespace

json::object GrantJson(const GrantOptions& grant) {
  json::object body{{"role", grant.role}};
  if (grant.project) body["project"] = *grant.project;
  if (grant.expires_ms) body["expiresIn"] = *grant.expires_ms;
  return body;
}

namespace {

// The secret is the only word on standard output: SANDBAR_TOKEN=$(sandbar key create ci).
Result<int> ShowMade(const Options* options, const json::object& made) {
  if (options->json) {
    SB_TRYV(Out(wire::NdjsonLine(made)));
    return 0;
  }
  const json::object key = Object(made, "key");
  Note(fmt::format("key {} ({}, {}); its secret is shown only now:", Text(key, "id"), Text(key, "name"),
                   Text(key, "role")));
  SB_TRYV(Out(Text(made, "secret") + "\n"));
  return 0;
}

Task<int> CreateKey(ApiClient* api, const Options* options, KeyCommand command) {
  json::object body = GrantJson(command.grant);
  body["name"] = command.names.at(0);
  json::value sent = std::move(body);
  SB_CO_TRY(json::object made, co_await api->Call("POST", kPath, std::move(sent)));
  co_return ShowMade(options, made);
}

Task<int> ListKeys(ApiClient* api, const Options* options, bool all) {
  std::string path = kPath;
  if (all) path += "?all=true";
  SB_CO_TRY(json::object answer, co_await api->Call("GET", std::move(path), std::nullopt));
  if (options->json) {
    SB_CO_TRYV(Out(wire::NdjsonLine(answer)));
    co_return 0;
  }
  const int64_t now = NowMs();
  std::vector<std::vector<std::string>> rows{
      {"ID", "NAME", "ROLE", "PROJECT", "STATE", "MADE", "EXPIRES", "USED", "MADE BY"}};
  for (const json::value& item : Array(answer, "keys")) {
    const json::object& key = item.as_object();
    rows.push_back({Text(key, "id"), Text(key, "name"), Text(key, "role"), Text(key, "projectId"), Text(key, "state"),
                    When(key, "createdAt", now), When(key, "expiresAt", now), When(key, "lastUsedAt", now),
                    Text(key, "madeBy")});
  }
  SB_CO_TRYV(Out(Table(rows)));
  co_return 0;
}

// The id of the key that has this id or name; among several of one name, the one that is in force.
Result<std::string> IdOf(const json::array& keys, const std::string& word) {
  std::vector<std::string> named, ended;
  for (const json::value& item : keys) {
    const json::object& key = item.as_object();
    if (Text(key, "id") == word) return word;
    if (Text(key, "name") != word) continue;
    (Text(key, "state") == "active" ? named : ended).push_back(Text(key, "id"));
  }
  if (named.size() == 1) return named.front();
  if (named.empty() && !ended.empty()) return ended.front();
  if (named.empty()) return FailWithFix(Code::kNotFound, "there is no key " + word, "sandbar key ls -a");
  return FailWithFix(Code::kConflict, fmt::format("{} keys have the name {}", named.size(), word),
                     "name it by its id; sandbar key ls shows the ids");
}

std::string PathOf(const std::string& id) {
  return std::string(kPath) + "/" + wire::EncodeComponent(id);
}

Task<int> RotateKey(ApiClient* api, const Options* options, std::string word) {
  SB_CO_TRY(json::object answer, co_await api->Call("GET", std::string(kPath) + "?all=true", std::nullopt));
  SB_CO_TRY(std::string id, IdOf(Array(answer, "keys"), word));
  std::string path = PathOf(id) + "/rotate";
  SB_CO_TRY(json::object made, co_await api->Call("POST", std::move(path), std::nullopt));
  if (!options->json) Note("revoked " + id);
  co_return ShowMade(options, made);
}

Task<int> RevokeKeys(ApiClient* api, const Options* options, std::vector<std::string> words) {
  SB_CO_TRY(json::object answer, co_await api->Call("GET", std::string(kPath) + "?all=true", std::nullopt));
  const json::array keys = Array(answer, "keys");
  for (const std::string& word : words) {
    SB_CO_TRY(std::string id, IdOf(keys, word));
    std::string path = PathOf(id);
    SB_CO_TRY(json::object revoked, co_await api->Call("DELETE", std::move(path), std::nullopt));
    if (options->json) {
      SB_CO_TRYV(Out(wire::NdjsonLine(revoked)));
      continue;
    }
    Note("revoked " + id + " (" + Text(Object(revoked, "key"), "name") + ")");
  }
  co_return 0;
}

}  // namespace

Task<int> Key(ApiClient* api, const Options* options, KeyCommand command) {
  if (command.verb == "create") co_return co_await CreateKey(api, options, std::move(command));
  if (command.verb == "ls") co_return co_await ListKeys(api, options, command.all);
  if (command.verb == "rotate") co_return co_await RotateKey(api, options, std::move(command.names.at(0)));
  co_return co_await RevokeKeys(api, options, std::move(command.names));
}

}  // namespace sandbar::cli
