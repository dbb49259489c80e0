// What the server knows about the state of layers on disk: which have a manifest, which were found damaged, and what
// follows from it for snapshots and for the sandboxes that stand on them. Runs on the store's thread.
#pragma once

#include <set>
#include <string>

#include "store/store.h"

namespace sandbar::sandbox {

// A snapshot that was not deleted stands on it.
Result<bool> IsLiving(store::Store& store, const std::string& layer);
// A layer of a living snapshot about which nothing is known yet, and which is not among `except`; empty: none.
Result<std::string> NextToSeal(store::Store& store, const std::set<std::string>& except);
// The same for a durable, undamaged layer that was last checked before `limit`, the longest ago first.
Result<std::string> NextToScrub(store::Store& store, int64_t limit, const std::set<std::string>& except);

// Writes down what is known about the layer, and about every snapshot that stands on it.
Result<> NoteLayer(store::Store& store, const store::Layer& layer);

// Sandboxes whose head stands on a damaged layer that was never durable, and so cannot come back: the head becomes the
// newest ancestor without damage. Everything that happens is in a notice.
Result<> FallBack(store::Store& store, const std::string& layer);

// At start. Layers that are gone are damage. `boot` names this run of the host's kernel: when it is another one than
// last time, whoever stands on a snapshot that had not become durable is told.
Result<> CheckAfterStart(store::Store& store, const std::set<std::string>& on_disk, const std::string& boot);

}  // namespace sandbar::sandbox
