#include "sandbox/snapshots/snapshot_cleaner.h"

#include "base/ids.h"
#include "base/log.h"
#include "sandbox/owner.h"
#include "sandbox/snapshots/retention.h"

namespace sandbar::sandbox {

Task<> SnapshotCleaner::RemoveUnused() {
  SB_CO_TRY(auto on_disk, co_await core_->deps.engine->ListSnapshots());
  auto find = [on_disk = std::move(on_disk)](store::Store& store) -> Result<std::vector<std::string>> {
    SB_TRYV(ExpireSnapshots(store, NowMs()));
    return UnusedLayers(store, on_disk);
  };
  SB_CO_TRY(auto unused, co_await core_->Combined(std::move(find)));
  for (auto& layer : unused) {
    SB_CO_TRYV(co_await core_->deps.engine->RemoveSnapshot(layer));
    auto forget = [layer](store::Journal& journal) { return journal.DeleteLayer(layer); };
    SB_CO_TRYV(co_await core_->Journal(std::move(forget)));
  }
  co_return Result<>{};
}

Task<bool> SnapshotCleaner::AllGood(std::vector<std::string> layers) {
  for (std::string& name : layers) {
    SB_CO_TRY(auto layer, co_await layers_->Check(std::move(name)));
    if (!layer.damage.empty()) co_return false;
  }
  co_return true;
}

Task<> SnapshotCleaner::FlattenLongChains() {
  while (!core_->closing) {
    auto find = [limit = core_->config.flatten_at, except = unflattened_](store::Store& store) {
      return FindLongChain(store, limit, except);
    };
    SB_CO_TRY(auto snapshot, co_await core_->Combined(std::move(find)));
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
    auto flattened = co_await core_->deps.engine->FlattenSnapshots(snapshot->snapshot_layers, layer, std::move(owner));
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
    SB_CO_TRYV(co_await core_->Combined(std::move(replace)));
    layers_->Seal();
  }
  co_return Result<>{};
}

}  // namespace sandbar::sandbox
