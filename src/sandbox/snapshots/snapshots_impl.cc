#include "sandbox/snapshots/snapshots_impl.h"

#include "sandbox/owner.h"
#include "sandbox/snapshots/retention.h"
#include "sandbox/validate.h"

namespace sandbar::sandbox {
namespace {

constexpr int kDiffTries = 300;
constexpr std::chrono::milliseconds kDiffAgain{100};

}  // namespace

Task<SnapshotTaken> SnapshotsImpl::Take(Scope scope, std::string session, std::optional<int64_t> expiration_ms) {
  if (expiration_ms) SB_CO_TRYV(CheckSnapshotExpiration("expiration", *expiration_ms));
  SB_CO_TRY(auto active, co_await records_->FindActive(scope, session));
  if (active->row().image_layers.empty())
    co_return Fail(Code::kUnsupported, "this session was started by an older server and cannot be kept");
  Keep keep;
  keep.what = Keep::What::kSnapshot;
  keep.expiration_ms = expiration_ms;
  auto stop = stopper_->Request(session, StopCause::kRequested, "snapshot", keep);
  if (!stop) co_return Fail(Code::kStopped, "the sandbox has stopped");
  SB_CO_TRYV(co_await stop->Wait());
  SnapshotTaken taken;
  SB_CO_TRY(taken.session, co_await records_->FindSession(scope, std::move(session)));
  if (taken.session.snapshot.empty())
    co_return Fail(Code::kUnavailable, "the machine was lost before its files could be kept");
  SB_CO_TRY(taken.snapshot, co_await records_->FindSnapshot(std::move(scope), taken.session.snapshot));
  co_return taken;
}

Task<Page<store::Snapshot>> SnapshotsImpl::List(Scope scope, ListQuery query) {
  return records_->ListSnapshots(std::move(scope), std::move(query));
}

Task<store::Snapshot> SnapshotsImpl::Get(Scope scope, std::string id) {
  return records_->FindSnapshot(std::move(scope), std::move(id));
}

Task<store::Snapshot> SnapshotsImpl::Delete(Scope scope, std::string id) {
  SB_CO_TRY(auto snapshot, co_await records_->FindSnapshot(std::move(scope), id));
  auto remove = [id](store::Store& store) { return MarkDeleted(store, id); };
  SB_CO_TRY(snapshot, co_await core_->Combined(std::move(remove)));
  co_await traces_->Clear();
  co_return snapshot;
}

Task<store::Snapshot> SnapshotsImpl::Verify(Scope scope, std::string id) {
  SB_CO_TRY(auto snapshot, co_await records_->FindSnapshot(scope, id));
  if (snapshot.deleted) co_return Fail(Code::kSnapshotGone, "snapshot " + snapshot.id + " was deleted");
  SB_CO_TRYV(co_await layers_->CheckAll(snapshot.snapshot_layers));
  co_return co_await records_->FindSnapshot(std::move(scope), std::move(id));
}

Task<SnapshotTreeNode> SnapshotsImpl::TreeNode(store::Snapshot snapshot) {
  SnapshotTreeNode node;
  if (!snapshot.parent.empty()) {
    SB_CO_TRY(node.siblings, co_await core_->directory->SnapshotChildren(snapshot.parent));
    std::erase_if(node.siblings, [&](const store::Snapshot& s) { return s.id == snapshot.id; });
  }
  node.snapshot = std::move(snapshot);
  co_return node;
}

Task<SnapshotTree> SnapshotsImpl::Tree(Scope scope, std::string id, int limit, bool descendants) {
  SnapshotTree tree;
  SB_CO_TRY(auto at, co_await records_->FindSnapshot(scope, std::move(id)));
  SB_CO_TRY(tree.anchor, co_await TreeNode(at));
  while (static_cast<int>(tree.nodes.size()) < limit) {
    if (descendants) {
      SB_CO_TRY(auto next, co_await core_->directory->SnapshotChildren(at.id));
      if (next.empty()) co_return tree;
      at = std::move(next.front());
    } else {
      if (at.parent.empty()) co_return tree;
      auto parent = co_await records_->FindSnapshot(scope, at.parent);
      if (!parent) co_return tree;
      at = *std::move(parent);
    }
    SB_CO_TRY(auto node, co_await TreeNode(at));
    tree.nodes.push_back(std::move(node));
  }
  // There may be more: the client goes on from the last one that it got.
  bool more = !at.parent.empty();
  if (descendants) {
    SB_CO_TRY(auto next, co_await core_->directory->SnapshotChildren(at.id));
    more = !next.empty();
  }
  if (more) tree.next = at.id;
  co_return tree;
}

Task<engine::LayerStack> SnapshotsImpl::StackOf(Scope scope, std::string what, bool base) {
  engine::LayerStack stack;
  SB_CO_TRY(auto snapshot, co_await records_->FindSnapshotIfAny(scope, what));
  if (!snapshot) {
    SB_CO_TRY(auto sandbox, co_await records_->FindSandbox(scope, std::move(what)));
    if (sandbox.current_snapshot.empty() && !base)
      co_return Fail(Code::kConflict, "\"" + sandbox.name + "\" has no snapshot yet: stop it, or take one");
    if (sandbox.current_snapshot.empty()) {
      SB_CO_TRY(auto session, co_await records_->FindSession(std::move(scope), sandbox.current_session));
      stack.image = std::move(session.image_layers);
      co_return stack;
    }
    SB_CO_TRY(snapshot, co_await records_->FindSnapshot(std::move(scope), sandbox.current_snapshot));
  }
  if (snapshot->deleted) co_return Fail(Code::kSnapshotGone, "snapshot " + snapshot->id + " was deleted");
  stack.image = snapshot->image_layers;
  // What is on a block device only a machine of its kind can tell.
  if (!base) {
    SB_CO_TRY(stack.snapshots, co_await converter_->Layers(*std::move(snapshot), engine::RootfsFormat::kDir));
  }
  co_return stack;
}

Task<engine::LayerDiff> SnapshotsImpl::Diff(Scope scope, std::string before, std::string after) {
  const bool base = before.empty();
  std::string first = base ? after : std::move(before);
  SB_CO_TRY(auto old, co_await StackOf(scope, std::move(first), base));
  std::string owner = OwnerOf(scope);
  SB_CO_TRY(auto now, co_await StackOf(std::move(scope), std::move(after), false));
  // A project has few places for readers: whoever comes later waits for one.
  for (int tries = 0;; ++tries) {
    auto diff = co_await core_->deps.engine->Diff(old, now, owner);
    if (diff || diff.error().code != Code::kTooMany || tries >= kDiffTries) co_return diff;
    SB_CO_TRYV(co_await Sleep(kDiffAgain));
  }
}

}  // namespace sandbar::sandbox
