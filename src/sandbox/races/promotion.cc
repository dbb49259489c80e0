// Snapshots beside each other: what differs, and making one sandbox's the other's.
#include "base/ids.h"
#include "sandbox/owner.h"
#include "sandbox/service_impl.h"
#include "sandbox/snapshots/retention.h"

namespace sandbar::sandbox {

namespace {

constexpr int kDiffTries = 300;
constexpr std::chrono::milliseconds kDiffAgain{100};

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

Task<engine::LayerStack> ServiceImpl::StackOf(Scope scope, std::string what, bool base) {
  engine::LayerStack stack;
  auto find = [what](store::Store& store) { return store.FindSnapshot(what); };
  SB_CO_TRY(auto snapshot, co_await core_.Db(std::move(find)));
  if (!snapshot || !InScope(scope, snapshot->team, snapshot->project)) {
    SB_CO_TRY(auto sandbox, co_await FindSandbox(scope, std::move(what)));
    if (sandbox.current_snapshot.empty() && !base)
      co_return Fail(Code::kConflict, "\"" + sandbox.name + "\" has no snapshot yet: stop it, or take one");
    if (sandbox.current_snapshot.empty()) {
      SB_CO_TRY(auto session, co_await FindSession(std::move(scope), sandbox.current_session));
      stack.image = std::move(session.image_layers);
      co_return stack;
    }
    SB_CO_TRY(snapshot, co_await GetSnapshot(std::move(scope), sandbox.current_snapshot));
  }
  if (snapshot->deleted) co_return Fail(Code::kSnapshotGone, "snapshot " + snapshot->id + " was deleted");
  stack.image = snapshot->image_layers;
  // What is on a block device only a machine of its kind can tell.
  if (!base) {
    SB_CO_TRY(stack.snapshots, co_await formats_.Layers(*std::move(snapshot), engine::RootfsFormat::kDir));
  }
  co_return stack;
}

Task<engine::LayerDiff> ServiceImpl::Diff(Scope scope, std::string before, std::string after) {
  const bool base = before.empty();
  std::string first = base ? after : std::move(before);
  SB_CO_TRY(auto old, co_await StackOf(scope, std::move(first), base));
  std::string owner = OwnerOf(scope);
  SB_CO_TRY(auto now, co_await StackOf(std::move(scope), std::move(after), false));
  // A project has few places for readers: whoever comes later waits for one.
  for (int tries = 0;; ++tries) {
    auto diff = co_await core_.deps.engine->Diff(old, now, owner);
    if (diff || diff.error().code != Code::kTooMany || tries >= kDiffTries) co_return diff;
    SB_CO_TRYV(co_await Sleep(kDiffAgain));
  }
}

// The state of a running sandbox as a part of something else: the snapshot counts as automatic, not as made by hand.
Task<> ServiceImpl::SnapshotOnTheWay(std::string session) {
  Keep keep;
  keep.what = Keep::What::kSnapshot;
  keep.on_the_way = true;
  auto stop = RequestStop(session, StopCause::kRequested, "promoted", keep);
  if (!stop) co_return Fail(Code::kStopped, "the sandbox has stopped");
  SB_CO_TRYV(co_await stop->Wait());
  co_return Result<>{};
}

Task<store::Sandbox> ServiceImpl::Promote(Scope scope, std::string fork, std::optional<std::string> into) {
  auto work = PromoteNow(std::move(scope), std::move(fork), std::move(into));
  co_return co_await RunToEnd(&tasks_, std::move(work));
}

Task<store::Sandbox> ServiceImpl::PromoteNow(Scope scope, std::string fork, std::optional<std::string> into) {
  SB_CO_TRY(auto from, co_await FindSandbox(scope, fork));
  if (!into) {
    auto find = [key = store::KeyOf(from)](store::Store& store) { return ForkedFrom(store, key); };
    SB_CO_TRY(into, co_await core_.Db(std::move(find)));
  }
  if (!into)
    co_return Fail(
        Code::kBadRequest,
        "\"" + fork + "\" was not forked from another sandbox: name the one that is to get its state (into)");
  if (*into == fork) co_return Fail(Code::kBadRequest, "a sandbox cannot be promoted into itself");
  SB_CO_TRY(auto target, co_await FindSandbox(scope, *into));
  const std::string running = "\"" + *into + "\" runs, and its stop would make another snapshot: stop it first";
  if (LiveOf(target.current_session) != nullptr) co_return Fail(Code::kConflict, running);
  if (LiveOf(from.current_session) != nullptr) {
    SB_CO_TRYV(co_await SnapshotOnTheWay(from.current_session));
    SB_CO_TRY(from, co_await FindSandbox(scope, std::move(fork)));
  }
  if (from.current_snapshot.empty()) co_return Fail(Code::kSnapshotMissing, "\"" + from.name + "\" has no snapshot");
  SB_CO_TRY(auto head, co_await UsableSnapshot(scope, from.current_snapshot));
  // A target that could not start from it any more would be lost.
  SB_CO_TRYV(core_.ladder.Pick(target.isolation, BaseOf(head).format));
  if (LiveOf(target.current_session) != nullptr) co_return Fail(Code::kConflict, running);
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
  co_return co_await core_.Db(std::move(promote));
}

}  // namespace sandbar::sandbox
