// Snapshots beyond the protocol: are they what they were, what differs between two, making a fork the new head, races.
#include <boost/json.hpp>

#include "api/call.h"
#include "api/handlers.h"
#include "api/vercel/shapes.h"
#include "wire/json_decode.h"
#include "wire/ndjson.h"

namespace sandbar::api {
namespace {

namespace json = boost::json;

struct PromoteBody {
  std::optional<std::string> into;
};
BOOST_DESCRIBE_STRUCT(PromoteBody, (), (into))

struct RaceBody {
  std::string source, command;
  std::vector<std::string> args;
  std::optional<int> count;
  std::optional<std::string> score, best, keep;
};
BOOST_DESCRIBE_STRUCT(RaceBody, (), (source, command, args, count, score, best, keep))

std::string_view KindName(char kind) {
  return kind == 'A' ? "added" : kind == 'D' ? "deleted" : "changed";
}

std::string_view TypeName(char type) {
  switch (type) {
    case 'd':
      return "directory";
    case 'f':
      return "file";
    case 'l':
      return "symlink";
    case 'p':
      return "pipe";
    case 's':
      return "socket";
    default:
      return "other";
  }
}

json::object RacerJson(const sandbox::Racer& r) {
  wire::Utf8Stream decode;
  std::string text = decode.Feed(r.output);
  text += decode.Flush();
  json::object out{{"name", r.name}, {"durationMs", r.duration_ms}, {"stdoutTail", std::move(text)}};
  if (r.exit_code) out["exitCode"] = *r.exit_code;
  if (r.score) out["score"] = *r.score;
  if (!r.error.empty()) out["error"] = r.error;
  return out;
}

}  // namespace

Task<> NativeVerifySnapshot(Call* call) {
  std::string id = call->Param("snapshot");
  auto snapshot = co_await call->domain->snapshots->Verify(call->scope, std::move(id));
  if (!snapshot) co_return std::unexpected(std::move(snapshot).error());
  json::object body{{"snapshot", SnapshotJson(*snapshot, false)}};
  co_return co_await call->Reply(std::move(body));
}

Task<> NativeNotices(Call* call) {
  std::string name(call->query.Get("sandbox").value_or(""));
  auto notices = co_await call->domain->sandboxes->Notices(call->scope, std::move(name));
  if (!notices) co_return std::unexpected(std::move(notices).error());
  json::array rows;
  for (const store::Notice& n : *notices) {
    json::object row{{"at", n.at}, {"sandbox", n.sandbox}, {"text", n.text}};
    rows.emplace_back(std::move(row));
  }
  json::object body{{"notices", std::move(rows)}};
  co_return co_await call->Reply(std::move(body));
}

Task<> NativeDiff(Call* call) {
  std::string a(call->query.Get("a").value_or("")), b(call->query.Get("b").value_or(""));
  if (a.empty()) co_return Fail(Code::kBadRequest, "`a`: a sandbox or a snapshot is required");
  // One alone is compared with the image it began as.
  if (b.empty()) std::swap(a, b);
  auto diff = co_await call->domain->snapshots->Diff(call->scope, std::move(a), std::move(b));
  if (!diff) co_return std::unexpected(std::move(diff).error());
  json::array rows;
  for (const engine::FileChange& c : diff->changes) {
    json::object row{{"path", c.path}, {"change", KindName(c.kind)}, {"type", TypeName(c.type)}};
    if (c.kind != 'D') row["size"] = c.size;
    if (c.kind != 'A') row["sizeBefore"] = c.before;
    rows.emplace_back(std::move(row));
  }
  json::object body{{"changes", std::move(rows)}, {"truncated", diff->more}};
  co_return co_await call->Reply(std::move(body));
}

Task<> NativePromote(Call* call) {
  SB_CO_TRY(std::string text, co_await call->Body());
  if (text.empty()) text = "{}";
  SB_CO_TRY(PromoteBody wanted, wire::DecodeJson<PromoteBody>(text, {.bytes = kMaxJsonBody}));
  std::string name = call->Param("name");
  auto sandbox = co_await call->domain->races->Promote(call->scope, std::move(name), std::move(wanted.into));
  if (!sandbox) co_return std::unexpected(std::move(sandbox).error());
  json::object body{{"sandbox", sandbox->name}, {"currentSnapshotId", sandbox->current_snapshot}};
  co_return co_await call->Reply(std::move(body));
}

Task<> NativeRace(Call* call) {
  SB_CO_TRY(std::string text, co_await call->Body());
  SB_CO_TRY(RaceBody wanted, wire::DecodeJson<RaceBody>(text, {.bytes = kMaxJsonBody}));
  std::string best = wanted.best.value_or("highest");
  if (best != "highest" && best != "lowest") co_return Fail(Code::kBadRequest, "`best`: highest or lowest");
  sandbox::RaceSpec spec;
  spec.source = std::move(wanted.source);
  spec.command = std::move(wanted.command);
  spec.args = std::move(wanted.args);
  spec.count = wanted.count.value_or(spec.count);
  spec.score = wanted.score.value_or("exit");
  if (spec.score == "exit") spec.score.clear();
  spec.lowest = best == "lowest";
  spec.keep = wanted.keep.value_or(spec.keep);
  auto race = co_await call->domain->races->Run(call->scope, std::move(spec));
  if (!race) co_return std::unexpected(std::move(race).error());
  json::array racers;
  for (const sandbox::Racer& r : race->racers) racers.emplace_back(RacerJson(r));
  json::object body{{"racers", std::move(racers)}, {"winner", nullptr}};
  if (race->winner) body["winner"] = *race->winner;
  if (!race->snapshot.empty()) body["snapshotId"] = race->snapshot;
  co_return co_await call->Reply(std::move(body));
}

}  // namespace sandbar::api
