#include "sandbox/races/promotion.h"

#include "base/ids.h"
#include "sandbox/snapshots/converter.h"
#include "sandbox/snapshots/retention.h"

namespace sandbar::sandbox {
namespace {

// What its first session was booted from says whose fork it is; later ones may have been given another's state.
Result<std::optional<std::string>> ForkedFrom(store::Store& store, const store::SandboxKey& key) {
  store::ListFilter first{.team = key.team, .project = key.project, .limit = 1, .ascending = true, .sandbox = key.name};
  SB_TRY(auto sessions, store.ListSessions(first));
  if (sessions.items.empty() || sessions.items[0].source_snapshot.empty()) return std::nullopt;
  SB_TRY(auto snapshot, store.FindSnapshot(sessions.items[0].source_snapshot));
  if (!snapshot || snapshot->sandbox == key.name) return std::nullopt;
  return snapshot->sandbox;
}

}  // namespace

Task<> Promotion::StopWithSnapshot(std::string session) {
  Keep keep;
  keep.what = Keep::What::kSnapshot;
  keep.on_the_way = true;
  auto stop = stopper_->Request(session, StopCause::kRequested, "promoted", keep);
  if (!stop) co_return Fail(Code::kStopped, "the sandbox has stopped");
  SB_CO_TRYV(co_await stop->Wait());
  co_return Result<>{};
}

Task<store::Sandbox> Promotion::Promote(Scope scope, std::string fork, std::optional<std::string> into) {
  SB_CO_TRY(auto from, co_await records_->FindSandbox(scope, fork));
  if (!into) {
    auto find = [key = store::KeyOf(from)](store::Store& store) { return ForkedFrom(store, key); };
    SB_CO_TRY(into, co_await core_->Combined(std::move(find)));
  }
  if (!into)
    co_return Fail(
        Code::kBadRequest,
        "\"" + fork + "\" was not forked from another sandbox: name the one that is to get its state (into)");
  if (*into == fork) co_return Fail(Code::kBadRequest, "a sandbox cannot be promoted into itself");
  SB_CO_TRY(auto target, co_await records_->FindSandbox(scope, *into));
  const std::string running = "\"" + *into + "\" runs, and its stop would make another snapshot: stop it first";
  if (active_->Has(target.current_session)) co_return Fail(Code::kConflict, running);
  if (active_->Has(from.current_session)) {
    SB_CO_TRYV(co_await StopWithSnapshot(from.current_session));
    SB_CO_TRY(from, co_await records_->FindSandbox(scope, std::move(fork)));
  }
  if (from.current_snapshot.empty()) co_return Fail(Code::kSnapshotMissing, "\"" + from.name + "\" has no snapshot");
  SB_CO_TRY(auto head, co_await sources_->FindSnapshot(scope, from.current_snapshot));
  // A target that could not start from it any more would be lost.
  SB_CO_TRYV(core_->engines.Pick(target.isolation, FormatOf(head)));
  if (active_->Has(target.current_session)) co_return Fail(Code::kConflict, running);
  auto promote = [key = store::KeyOf(target), head](store::Store& store) -> Result<store::Sandbox> {
    SB_TRYV(MarkUsed(store, head.id));
    SB_TRYV(Claim(store, key));
    auto edit = [&](store::Sandbox& s) -> Result<> {
      s.current_snapshot = head.id;
      s.image = head.image;
      s.runtime = head.runtime;
      s.cwd = head.cwd;
      s.updated_at = NowMs();
      return {};
    };
    return store.EditSandbox(key, edit);
  };
  co_return co_await core_->Combined(std::move(promote));
}

}  // namespace sandbar::sandbox
