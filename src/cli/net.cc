// `sandbar net …`: what a sandbox tried to reach, a policy that would do, what another one would change.
#include "base/files.h"
#include "base/ids.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "wire/json_parse.h"
#include "wire/ndjson.h"
#include "wire/url.h"

namespace sandbar::cli {
namespace {

constexpr auto kPoll = std::chrono::seconds(1);
constexpr size_t kShownHosts = 20;

std::string NetworkPath(const std::string& session, std::string_view what) {
  return "/x/v1/sessions/" + wire::EncodeComponent(session) + "/network/" + std::string(what);
}

const json::array& List(const json::object& object, std::string_view key) {
  static const json::array kEmpty;
  const json::value* value = object.if_contains(key);
  return value != nullptr && value->is_array() ? value->as_array() : kEmpty;
}

bool Flag(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  return value != nullptr && value->is_bool() && value->as_bool();
}

// host:port as a person would write it.
std::string Where(const json::object& row) {
  std::string host = Text(row, "host").empty() ? Text(row, "address") : Text(row, "host");
  int64_t port = Number(row, "port");
  return port == 0 ? host : host + ":" + std::to_string(port);
}

std::string LogTable(const json::object& log) {
  std::vector<std::vector<std::string>> rows{{"LAST", "KIND", "TARGET", "VERDICT", "COUNT", "WHY"}};
  int64_t now = NowMs();
  for (const auto& item : List(log, "attempts")) {
    const json::object& a = item.as_object();
    bool allowed = Flag(a, "allowed");
    rows.push_back({Age(now - Number(a, "lastAt")) + " ago", Text(a, "kind"), Where(a), allowed ? "allowed" : "denied",
                    std::to_string(Number(a, "count")), allowed ? "" : Text(a, "reason")});
  }
  // Packets that are nobody's attempt to connect.
  for (const auto& item : List(log, "denials")) {
    const json::object& d = item.as_object();
    if (Text(d, "kind") != "packets") continue;
    rows.push_back({Age(now - Number(d, "at")) + " ago", "packets", Text(d, "target"), "denied",
                    std::to_string(Number(d, "count")), Text(d, "reason")});
  }
  return Table(rows);
}

std::string DenialLine(const json::object& d) {
  return Printable(fmt::format("denied {} {}: {} ({})", Text(d, "kind"), Text(d, "target"), Text(d, "reason"),
                               Text(d, "hint"))) +
         "\n";
}

Task<int> FollowDenials(ApiClient* api, bool as_json, std::string path) {
  int64_t seen = 0;
  for (;;) {
    SB_CO_TRY(json::object log, co_await api->Call("GET", path, std::nullopt));
    int64_t newest = seen;
    for (const auto& item : List(log, "denials")) {
      const json::object& d = item.as_object();
      if (Number(d, "at") <= seen) continue;
      newest = std::max(newest, Number(d, "at"));
      SB_CO_TRYV(Out(as_json ? wire::NdjsonLine(d) : DenialLine(d)));
    }
    seen = newest;
    SB_CO_TRYV(co_await Sleep(kPoll));
  }
}

Task<int> NetLog(ApiClient* api, bool as_json, bool follow, std::string session) {
  std::string path = NetworkPath(session, "log");
  if (follow) co_return co_await FollowDenials(api, as_json, std::move(path));
  SB_CO_TRY(json::object log, co_await api->Call("GET", std::move(path), std::nullopt));
  SB_CO_TRYV(Out(as_json ? wire::NdjsonLine(log) : LogTable(log)));
  co_return 0;
}

Task<int> NetSuggest(ApiClient* api, std::string session) {
  std::string path = NetworkPath(session, "suggest");
  SB_CO_TRY(json::object got, co_await api->Call("GET", std::move(path), std::nullopt));
  if (Number(got, "attempts") == 0) Note("nothing was tried yet");
  SB_CO_TRYV(Out(wire::NdjsonLine(Object(got, "networkPolicy"))));
  co_return 0;
}

Task<int> NetTest(ApiClient* api, bool as_json, std::string session, json::value policy) {
  std::string path = NetworkPath(session, "test");
  json::value body = json::object{{"policy", std::move(policy)}};
  SB_CO_TRY(json::object got, co_await api->Call("POST", std::move(path), std::move(body)));
  std::vector<std::vector<std::string>> rows{{"KIND", "TARGET", "COUNT", "NOW", "THEN", "BECAUSE"}};
  bool breaks = false;
  for (const auto& item : List(got, "changes")) {
    const json::object& c = item.as_object();
    bool now = Flag(c, "allowedNow");
    bool then = Flag(c, "allowedThen");
    breaks = breaks || (now && !then);
    rows.push_back({Text(c, "kind"), Where(c), std::to_string(Number(c, "count")), now ? "allowed" : "denied",
                    then ? "allowed" : "denied", Text(c, "ruleThen")});
  }
  if (as_json) {
    SB_CO_TRYV(Out(wire::NdjsonLine(got)));
  } else if (rows.size() > 1) {
    SB_CO_TRYV(Out(Table(rows)));
  } else {
    Note(fmt::format("no difference in {} recorded attempts", Number(got, "attempts")));
  }
  co_return breaks ? 1 : 0;
}

Task<int> NetSet(ApiClient* api, bool as_json, std::string session, json::value policy) {
  std::string path = "/v2/sandboxes/sessions/" + wire::EncodeComponent(session) + "/network-policy";
  SB_CO_TRY(json::object got, co_await api->Call("POST", std::move(path), std::move(policy)));
  const json::object& now = Object(Object(got, "session"), "networkPolicy");
  if (as_json) SB_CO_TRYV(Out(wire::NdjsonLine(now)));
  Note("in force: " + Text(now, "mode"));
  co_return 0;
}

}  // namespace

Result<json::value> ReadPolicy(const std::string& word) {
  if (word == "allow-all" || word == "deny-all") return json::object{{"mode", word}};
  SB_TRY(std::string text, ReadFile(word));
  SB_TRY(json::value policy, wire::ParseJson(text));
  if (const auto* mode = policy.if_string()) return json::object{{"mode", *mode}};
  if (!policy.is_object()) return Fail(Code::kBadRequest, word + ": a policy is a JSON object");
  return policy;
}

Task<int> Net(ApiClient* api, const Options* options, NetCommand command) {
  json::value policy;
  if (!command.policy.empty()) {
    SB_CO_TRY(policy, ReadPolicy(command.policy));
  }
  SB_CO_TRY(std::string session, co_await SessionOf(api, command.name));
  if (command.verb == "log") co_return co_await NetLog(api, options->json, command.follow, std::move(session));
  if (command.verb == "suggest") co_return co_await NetSuggest(api, std::move(session));
  if (command.verb == "test") co_return co_await NetTest(api, options->json, std::move(session), std::move(policy));
  co_return co_await NetSet(api, options->json, std::move(session), std::move(policy));
}

Task<> NoteDenials(ApiClient* api, std::string session, int64_t since_ms) {
  std::string path = NetworkPath(session, "log");
  SB_CO_TRY(json::object log, co_await api->Call("GET", std::move(path), std::nullopt));
  std::vector<std::string> hosts;
  for (const auto& item : List(log, "denials")) {
    const json::object& d = item.as_object();
    std::string host = Text(d, "host").empty() ? Text(d, "target") : Text(d, "host");
    if (Number(d, "at") < since_ms || std::ranges::find(hosts, host) != hosts.end()) continue;
    hosts.push_back(host);
    if (hosts.size() > kShownHosts) break;
    Note(Printable(
        fmt::format("the network policy denied {}: {}; {}", Text(d, "target"), Text(d, "reason"), Text(d, "hint"))));
  }
  co_return Result<>{};
}

}  // namespace sandbar::cli
