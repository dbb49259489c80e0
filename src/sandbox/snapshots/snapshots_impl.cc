// Snapshots: making, listing, deleting, the tree, and what becomes of those that nobody needs.
#include "base/ids.h"
#include "base/log.h"
#include "sandbox/owner.h"
#include "sandbox/service_impl.h"
#include "sandbox/snapshots/retention.h"
#include "sandbox/validate.h"

namespace sandbar::sandbox {

namespace {

constexpr std::chrono::minutes kTidyEvery{1};

std::unexpected<Error> NoSnapshot() {
  return Fail(Code::kNotFound, "snapshot not found");
}

}  // namespace

Task<SnapshotTaken> ServiceImpl::TakeSnapshot(Scope scope, std::string session, std::optional<int64_t> expiration_ms) {
  if (expiration_ms) SB_CO_TRYV(CheckSnapshotExpiration("expiration", *expiration_ms));
  SB_CO_TRY(auto live, co_await FindLive(scope, session));
  if (live->row().image_layers.empty())
    co_return Fail(Code::kUnsupported, "this session was started by an older server and cannot be kept");
  Keep keep;
  keep.what = Keep::What::kSnapshot;
  keep.expiration_ms = expiration_ms;
  auto stop = RequestStop(session, StopCause::kRequested, "snapshot", keep);
  if (!stop) co_return Fail(Code::kStopped, "the sandbox has stopped");
  SB_CO_TRYV(co_await stop->Wait());
  SnapshotTaken taken;
  SB_CO_TRY(taken.session, co_await FindSession(scope, std::move(session)));
  if (taken.session.snapshot.empty())
    co_return Fail(Code::kUnavailable, "the machine was lost before its files could be kept");
  SB_CO_TRY(taken.snapshot, co_await GetSnapshot(std::move(scope), taken.session.snapshot));
  co_return taken;
}

Task<Page<store::Snapshot>> ServiceImpl::ListSnapshots(Scope scope, ListQuery query) {
  SB_CO_TRY(auto filter, CheckList(scope, query, true));
  auto list = [filter = std::move(filter)](store::Store& store) { return store.ListSnapshots(filter); };
  SB_CO_TRY(auto listing, co_await core_.Db(std::move(list)));
  Page<store::Snapshot> page;
  page.items = std::move(listing.items);
  page.next = std::move(listing.next);
  co_return page;
}

Task<store::Snapshot> ServiceImpl::GetSnapshot(Scope scope, std::string id) {
  auto find = [id = std::move(id)](store::Store& store) { return store.FindSnapshot(id); };
  SB_CO_TRY(auto found, co_await core_.Db(std::move(find)));
  if (!found || !InScope(scope, found->team, found->project)) co_return NoSnapshot();
  co_return *std::move(found);
}

Task<store::Snapshot> ServiceImpl::DeleteSnapshot(Scope scope, std::string id) {
  SB_CO_TRY(auto snapshot, co_await GetSnapshot(std::move(scope), id));
  auto remove = [id](store::Store& store) { return MarkDeleted(store, id); };
  SB_CO_TRY(snapshot, co_await core_.Db(std::move(remove)));
  co_await ClearTraces();
  co_return snapshot;
}

Task<SnapshotTreeNode> ServiceImpl::TreeNode(store::Snapshot snapshot) {
  SnapshotTreeNode node;
  if (!snapshot.parent.empty()) {
    auto children = [parent = snapshot.parent](store::Store& store) { return store.SnapshotChildren(parent); };
    SB_CO_TRY(node.siblings, co_await core_.Db(std::move(children)));
    std::erase_if(node.siblings, [&](const store::Snapshot& s) { return s.id == snapshot.id; });
  }
  node.snapshot = std::move(snapshot);
  co_return node;
}

Task<SnapshotTree> ServiceImpl::GetSnapshotTree(Scope scope, std::string id, int limit, bool descendants) {
  SnapshotTree tree;
  SB_CO_TRY(auto at, co_await GetSnapshot(scope, std::move(id)));
  SB_CO_TRY(tree.anchor, co_await TreeNode(at));
  while (static_cast<int>(tree.nodes.size()) < limit) {
    if (descendants) {
      auto children = [parent = at.id](store::Store& store) { return store.SnapshotChildren(parent); };
      SB_CO_TRY(auto next, co_await core_.Db(std::move(children)));
      if (next.empty()) co_return tree;
      at = std::move(next.front());
    } else {
      if (at.parent.empty()) co_return tree;
      auto parent = co_await GetSnapshot(scope, at.parent);
      if (!parent) co_return tree;
      at = *std::move(parent);
    }
    SB_CO_TRY(auto node, co_await TreeNode(at));
    tree.nodes.push_back(std::move(node));
  }
  // There may be more: the client goes on from the last one that it got.
  bool more = !at.parent.empty();
  if (descendants) {
    auto children = [parent = at.id](store::Store& store) { return store.SnapshotChildren(parent); };
    SB_CO_TRY(auto next, co_await core_.Db(std::move(children)));
    more = !next.empty();
  }
  if (more) tree.next = at.id;
  co_return tree;
}

// One pass: what has expired is marked, what nothing can ask for any more is removed from disk.
Task<> ServiceImpl::Tidy() {
  SB_CO_TRY(auto on_disk, co_await core_.deps.engine->ListSnapshots());
  auto find = [on_disk = std::move(on_disk)](store::Store& store) -> Result<std::vector<std::string>> {
    SB_TRYV(ExpireSnapshots(store, NowMs()));
    return UnusedLayers(store, on_disk);
  };
  SB_CO_TRY(auto unused, co_await core_.Db(std::move(find)));
  for (auto& layer : unused) {
    SB_CO_TRYV(co_await core_.deps.engine->RemoveSnapshot(layer));
    auto forget = [layer](store::Store& store) { return store.DeleteLayer(layer); };
    SB_CO_TRYV(co_await core_.Db(std::move(forget)));
  }
  co_return Result<>{};
}

// Rows that were deleted are still in the database's log. Once per round, however many there were.
Task<> ServiceImpl::PurgeLog() {
  if (!std::exchange(purge_, false)) co_return Result<>{};
  auto purge = [](store::Store& store) { return store.PurgeLog(); };
  auto purged = co_await core_.Db(std::move(purge));
  if (!purged) purge_ = true;
  co_return purged;
}

// After something was deleted. Memory goes at once: it may hold secrets, and the rounds of tidying may take a while.
Task<> ServiceImpl::ClearTraces() {
  purge_ = true;
  auto tidied = co_await TidyMemory();
  if (!tidied && !core_.closing) log::Warn("memory of deleted snapshots: {}", tidied.error().message);
  Collect();
  co_return Result<>{};
}

Task<bool> ServiceImpl::AllGood(std::vector<std::string> layers) {
  for (std::string& name : layers) {
    SB_CO_TRY(auto layer, co_await CheckLayer(std::move(name)));
    if (!layer.damage.empty()) co_return false;
  }
  co_return true;
}

Task<> ServiceImpl::FlattenLongChains() {
  while (!core_.closing) {
    auto find = [limit = core_.config.flatten_at, except = unflattened_](store::Store& store) {
      return FindLongChain(store, limit, except);
    };
    SB_CO_TRY(auto snapshot, co_await core_.Db(std::move(find)));
    if (!snapshot) co_return Result<>{};
    // What is damaged must not get a new manifest that vouches for it.
    auto good = co_await AllGood(snapshot->snapshot_layers);
    // Nor what can never be read.
    const bool unreadable = !good && good.error().code == Code::kUnsupported;
    if (!good && !unreadable) co_return std::unexpected(std::move(good).error());
    if (unreadable || !*good) {
      unflattened_.insert(snapshot->id);
      continue;
    }
    const std::string layer = "flat_" + snapshot->id;
    std::string owner = OwnerOf(*snapshot);
    auto flattened = co_await core_.deps.engine->FlattenSnapshots(snapshot->snapshot_layers, layer, std::move(owner));
    if (!flattened && flattened.error().code == Code::kUnsupported) {
      // Not for this format: it stays as long as it is, and the others get their turn.
      unflattened_.insert(snapshot->id);
      continue;
    }
    if (!flattened) co_return flattened;
    log::Info("snapshot {}: {} layers made into one", snapshot->id, snapshot->snapshot_layers.size());
    auto replace = [snapshot = *std::move(snapshot), layer](store::Store& store) {
      return ReplaceLayers(store, snapshot, layer);
    };
    SB_CO_TRYV(co_await core_.Db(std::move(replace)));
    Seal();
  }
  co_return Result<>{};
}

Task<> ServiceImpl::KeepSnapshotsTidy() {
  co_await asio::this_coro::throw_if_cancelled(false);
  while (!core_.closing) {
    // Each for itself: one that fails must not let the garbage of the others grow.
    auto flattened = co_await FlattenLongChains();
    auto snapshots = co_await Tidy();
    auto drives = co_await TidyDrives();
    auto live = co_await TidyLiveSnapshots();
    auto memory = co_await TidyMemory();
    auto records = co_await RemoveDisposable();
    auto unclaimed = co_await RemoveUnclaimed();
    auto purged = co_await PurgeLog();
    for (const Result<>* done : {&flattened, &snapshots, &drives, &live, &memory, &records, &unclaimed, &purged}) {
      if (!*done && !core_.closing) log::Warn("tidying up: {}", done->error().message);
    }
    auto again = co_await collect_.Wait(kTidyEvery);
    if (!again) break;
    auto paused = co_await Sleep(core_.config.tidy_pause);
    if (!paused) break;
  }
  co_return Result<>{};
}

}  // namespace sandbar::sandbox
