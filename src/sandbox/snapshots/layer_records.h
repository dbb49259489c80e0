// What the server knows about the state of layers on disk: which have a manifest, which were found damaged, and what
// follows from it for snapshots and for the sandboxes that stand on them. Runs on the store's thread.
#pragma once

#include <set>
#include <string>

#include "store/store.h"

namespace sandbar::sandbox {

// A snapshot that was not deleted stands on it.
Result<bool> IsLiving(store::Store& store, const std::string& layer);
// The project of the first living snapshot that stands on it; empty when there is none.
Result<std::string> OwnerOfLayer(store::Store& store, const std::string& layer);

// A layer to be read; empty: none.
struct LayerToRead {
  std::string name, owner;
};
// Which ones are not in question: layers by name, and all of these owners. The owner behind `after` has the next turn.
struct NotThese {
  std::set<std::string> layers, owners;
  std::string after;
};
// A layer of a living snapshot about which nothing is known yet.
Result<LayerToRead> NextToSeal(store::Store& store, const NotThese& except);
// A durable, undamaged layer that was last checked before `limit`, the longest ago first.
Result<LayerToRead> NextToScrub(store::Store& store, int64_t limit, const NotThese& except);

// Writes down what is known about the layer, and about every snapshot that stands on it.
Result<> NoteLayer(store::Store& store, const store::Layer& layer);

// Sandboxes whose head stands on a damaged layer that was never durable, and so cannot come back: the head becomes the
// newest ancestor without damage. Everything that happens is in a notice.
Result<> FallBack(store::Store& store, const std::string& layer);

// At start. Layers that are gone are damage. `boot` names this run of the host's kernel: when it is another one than
// last time, whoever stands on a snapshot that had not become durable is told.
Result<> CheckAfterStart(store::Store& store, const std::set<std::string>& on_disk, const std::string& boot);

}  // namespace sandbar::sandbox
