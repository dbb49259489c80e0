// `sandbar snapshot verify`, `diff`, `promote` and `race`.
#include <fmt/format.h>

#include "base/ids.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "wire/ndjson.h"
#include "wire/url.h"

namespace sandbar::cli {
namespace {

bool Flag(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  return value != nullptr && value->is_bool() && value->as_bool();
}

}  // namespace

Task<int> VerifySnapshots(ApiClient* api, bool as_json, std::vector<std::string> ids) {
  if (ids.empty()) {
    SB_CO_TRY(json::array all, co_await AllSnapshots(api, ""));
    for (const auto& item : all) ids.push_back(Text(item.as_object(), "id"));
  }
  int code = 0;
  for (const std::string& id : ids) {
    std::string path = "/x/v1/snapshots/" + wire::EncodeComponent(id) + "/verify";
    SB_CO_TRY(json::object got, co_await api->Call("POST", std::move(path), std::nullopt));
    const json::object& snapshot = Object(got, "snapshot");
    const std::string damage = Text(snapshot, "damage");
    if (!damage.empty()) code = 1;
    SB_CO_TRYV(Out(as_json ? wire::NdjsonLine(snapshot)
                           : Printable(id + (damage.empty() ? " ok" : " damaged: " + damage)) + "\n"));
  }
  co_return code;
}

Task<int> Diff(ApiClient* api, const Options* options, DiffCommand command) {
  std::string path = "/x/v1/diff?a=" + wire::EncodeComponent(command.a);
  if (!command.b.empty()) path += "&b=" + wire::EncodeComponent(command.b);
  SB_CO_TRY(json::object got, co_await api->Call("GET", std::move(path), std::nullopt));
  if (options->json) {
    SB_CO_TRYV(Out(wire::NdjsonLine(got)));
    co_return 0;
  }
  std::string text;
  for (const auto& item : Array(got, "changes")) {
    const json::object& c = item.as_object();
    const std::string change = Text(c, "change"), type = Text(c, "type");
    text += fmt::format("{} {}{}",
                        change == "added"     ? 'A'
                        : change == "deleted" ? 'D'
                                              : 'M',
                        Printable(Text(c, "path")), type == "directory" ? "/" : "");
    if (type == "file" && change != "deleted") text += "  " + Bytes(static_cast<uint64_t>(Number(c, "size")));
    text += "\n";
  }
  SB_CO_TRYV(Out(text));
  if (Flag(got, "truncated")) Note("there are more changes than these");
  co_return 0;
}

Task<int> Promote(ApiClient* api, const Options* options, PromoteCommand command) {
  std::string path = "/x/v1/sandboxes/" + wire::EncodeComponent(command.name) + "/promote";
  json::object wanted;
  if (command.into) wanted["into"] = *command.into;
  json::value body = std::move(wanted);
  SB_CO_TRY(json::object got, co_await api->Call("POST", std::move(path), std::move(body)));
  if (options->json) SB_CO_TRYV(Out(wire::NdjsonLine(got)));
  Note(Text(got, "sandbox") + " starts from " + Text(got, "currentSnapshotId") + " now");
  co_return 0;
}

// 1: nobody won.
Task<int> Race(ApiClient* api, const Options* options, RaceCommand command) {
  json::array args(command.argv.begin() + 1, command.argv.end());
  json::value body =
      json::object{{"source", command.name},  {"count", command.count}, {"command", command.argv.front()},
                   {"args", std::move(args)}, {"score", command.score}, {"best", command.best},
                   {"keep", command.keep}};
  SB_CO_TRY(json::object got, co_await api->Call("POST", "/x/v1/race", std::move(body)));
  const json::value& winner = got.at("winner");
  if (options->json) {
    SB_CO_TRYV(Out(wire::NdjsonLine(got)));
    co_return winner.is_null() ? 1 : 0;
  }
  std::vector<std::vector<std::string>> rows{{"", "FORK", "EXIT", "TIME", "SCORE"}};
  int64_t index = 0;
  for (const auto& item : Array(got, "racers")) {
    const json::object& r = item.as_object();
    const bool won = winner.is_int64() && winner.as_int64() == index++;
    const json::value* score = r.if_contains("score");
    rows.push_back({won ? "*" : "", Text(r, "name"),
                    r.contains("exitCode") ? std::to_string(Number(r, "exitCode")) : Text(r, "error"),
                    std::to_string(Number(r, "durationMs")) + " ms",
                    score == nullptr ? "-" : fmt::format("{}", score->to_number<double>())});
  }
  SB_CO_TRYV(Out(Table(rows)));
  if (winner.is_null()) Note("nobody won: nothing was kept");
  co_return winner.is_null() ? 1 : 0;
}

}  // namespace sandbar::cli
