// Snapshots, forks, and what sandboxes have used.
#include "base/ids.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "wire/ndjson.h"
#include "wire/url.h"

namespace sandbar::cli {
namespace {

constexpr char kSnapshots[] = "/v2/sandboxes/snapshots";

// What it survives so far.
std::string StateOf(const json::object& snapshot, int64_t now) {
  if (snapshot.contains("damage")) return "damaged";
  if (snapshot.contains("verifiedAt")) return "verified " + Age(now - Number(snapshot, "verifiedAt")) + " ago";
  return snapshot.contains("durable") && snapshot.at("durable").as_bool() ? "durable" : "published";
}

Task<int> ListSnapshots(ApiClient* api, bool as_json, std::string name) {
  SB_CO_TRY(json::array all, co_await AllSnapshots(api, std::move(name)));
  if (as_json) {
    json::object wrapped{{"snapshots", std::move(all)}};
    SB_CO_TRYV(Out(wire::NdjsonLine(wrapped)));
    co_return 0;
  }
  const int64_t now = NowMs();
  std::vector<std::vector<std::string>> rows{{"SNAPSHOT", "SANDBOX", "MADE", "SIZE", "STATE", "CREATED", "EXPIRES"}};
  for (const auto& item : all) {
    const json::object& s = item.as_object();
    std::string ends = "never";
    if (s.contains("expiresAt")) ends = "in " + Age(Number(s, "expiresAt") - now);
    rows.push_back({Text(s, "id"), Text(s, "sourceSandboxName"), Text(s, "creationMethod"),
                    Bytes(static_cast<uint64_t>(Number(s, "sizeBytes"))), StateOf(s, now),
                    Age(now - Number(s, "createdAt")) + " ago", ends});
  }
  SB_CO_TRYV(Out(Table(rows)));
  co_return 0;
}

Task<int> RemoveSnapshots(ApiClient* api, bool as_json, std::vector<std::string> ids) {
  int failed = 0;
  for (const std::string& id : ids) {
    std::string path = std::string(kSnapshots) + "/" + wire::EncodeComponent(id);
    auto got = co_await api->Call("DELETE", std::move(path), std::nullopt);
    if (!got) {
      Complain(std::move(got).error().Context(id), as_json);
      failed = kExitOurs;
      continue;
    }
    SB_CO_TRYV(Out(as_json ? wire::NdjsonLine(*got) : id + "\n"));
  }
  co_return failed;
}

double Real(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  return value != nullptr && value->is_number() ? value->to_number<double>() : 0;
}

}  // namespace

Task<json::array> AllSnapshots(ApiClient* api, std::string sandbox) {
  json::array all;
  std::string cursor;
  do {
    std::string path = std::string(kSnapshots) + "?limit=50";
    if (!sandbox.empty()) path += "&name=" + wire::EncodeComponent(sandbox);
    if (!cursor.empty()) path += "&cursor=" + wire::EncodeComponent(cursor);
    SB_CO_TRY(json::object page, co_await api->Call("GET", path, std::nullopt));
    for (const auto& item : Array(page, "snapshots")) {
      if (Text(item.as_object(), "status") != "deleted") all.push_back(item);
    }
    cursor = Text(Object(page, "pagination"), "next");
  } while (!cursor.empty());
  co_return all;
}

Task<int> Snapshot(ApiClient* api, const Options* options, SnapshotCommand command) {
  std::vector<std::string> rest(command.words.begin() + 1, command.words.end());
  const std::string verb = command.words.front();
  if (verb == "ls" && rest.size() <= 1) {
    std::string of;
    if (!rest.empty()) of = rest.front();
    co_return co_await ListSnapshots(api, options->json, std::move(of));
  }
  if (verb == "verify") co_return co_await VerifySnapshots(api, options->json, std::move(rest));
  if (verb == "rm" && !rest.empty()) co_return co_await RemoveSnapshots(api, options->json, std::move(rest));
  if (verb == "ls" || verb == "rm" || !rest.empty()) {
    auto wrong = FailWithFix(Code::kBadRequest, "snapshot takes one sandbox, or ls [NAME], or verify [ID…], or rm ID…",
                             "sandbar snapshot NAME");
    Complain(wrong.error(), options->json);
    co_return 2;
  }
  // A stopped sandbox goes on for a moment, as with the official client: the caller gets a snapshot of its own, which
  // no later stop replaces.
  SB_CO_TRY(std::string session, co_await SessionOf(api, verb, true));
  SB_CO_TRY(json::object got, co_await api->Call("POST", SessionPath(session) + "/snapshot", std::nullopt));
  std::string line = Text(Object(got, "snapshot"), "id") + "\n";
  if (options->json) line = wire::NdjsonLine(got);
  SB_CO_TRYV(Out(line));
  Note(verb + " has stopped; go on with: sandbar resume " + verb);
  co_return 0;
}

Task<int> Fork(ApiClient* api, const Options* options, ForkCommand command) {
  json::object fields;
  if (command.as) fields["name"] = *command.as;
  AddDemand(command.isolation, &fields);
  if (command.live) fields["live"] = true;
  json::value body = std::move(fields);
  const std::string native = "/x/v1/sandboxes/" + wire::EncodeComponent(command.name);
  std::string path = (command.live ? native : NamedPath(command.name)) + "/fork";
  SB_CO_TRY(json::object got, co_await api->Call("POST", std::move(path), std::move(body)));
  std::string line = Text(Object(got, "sandbox"), "name") + "\n";
  if (options->json) line = wire::NdjsonLine(got);
  SB_CO_TRYV(Out(line));
  if (command.live)
    Note(fmt::format("{} stood still for {} ms; its memory took {}", command.name, Number(got, "pauseMs"),
                     Bytes(static_cast<uint64_t>(Number(got, "memoryBytes")))));
  co_return 0;
}

Task<int> Usage(ApiClient* api, const Options* options) {
  SB_CO_TRY(json::object got, co_await api->Call("GET", "/x/v1/usage", std::nullopt));
  if (options->json) {
    SB_CO_TRYV(Out(wire::NdjsonLine(got)));
    co_return 0;
  }
  std::vector<std::vector<std::string>> rows{{"PROJECT", "CPU-HOURS", "GB-HOURS", "CREATIONS", "IN", "OUT", "COST"}};
  for (const auto& item : Array(got, "projects")) {
    const json::object& u = item.as_object();
    const json::object& cost = Object(u, "cost");
    rows.push_back({Text(u, "projectId"), fmt::format("{:.4f}", Real(u, "cpuHours")),
                    fmt::format("{:.4f}", Real(u, "memoryGbHours")), std::to_string(Number(u, "creations")),
                    Bytes(static_cast<uint64_t>(Number(u, "ingressBytes"))),
                    Bytes(static_cast<uint64_t>(Number(u, "egressBytes"))),
                    cost.empty() ? "-" : fmt::format("{:.2f} {}", Real(cost, "total"), Text(cost, "currency"))});
  }
  SB_CO_TRYV(Out(Table(rows)));
  co_return 0;
}

}  // namespace sandbar::cli
