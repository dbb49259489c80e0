// Records about layers on disk: which have a manifest, which are damaged, and the consequences for snapshots and for
// the sandboxes that stand on them. All functions run on the store's thread.
#pragma once

#include <set>
#include <string>

#include "store/store.h"

namespace sandbar::sandbox {

// Whether a snapshot that was not deleted stands on the layer.
Result<bool> IsLiving(store::Store& store, const std::string& layer);
// The project of the first living snapshot that stands on it; empty when there is none.
Result<std::string> OwnerOfLayer(store::Store& store, const std::string& layer);

// A layer that is due to be scanned; an empty name: none.
struct LayerToRead {
  std::string name, owner;
};
// Layers that are left out: by name, and all layers of these owners. The owner behind `after` has the next turn.
struct NotThese {
  std::set<std::string> layers, owners;
  std::string after;
};
// A layer of a snapshot that was never scanned.
Result<LayerToRead> NextToSeal(store::Store& store, const NotThese& except);
// A durable, undamaged layer that was last checked before `limit`, the longest ago first.
Result<LayerToRead> NextToScrub(store::Store& store, int64_t limit, const NotThese& except);

// Writes down what is known about the layer, and about every snapshot that stands on it.
Result<> NoteLayer(store::Store& store, const store::Layer& layer);

// For sandboxes whose head stands on a damaged layer that was never durable: the newest ancestor without damage becomes
// the head. A notice tells the owner.
Result<> FallBack(store::Store& store, const std::string& layer);

// At start. A missing layer counts as damage. `boot` names this run of the host's kernel: when it differs from the last
// one, a notice tells the owners of sandboxes whose snapshot had not become durable.
Result<> CheckAfterStart(store::Store& store, const std::set<std::string>& on_disk, const std::string& boot);

}  // namespace sandbar::sandbox
