// Sandboxes that have to go: on record before the first of their files is given up, so that a server that ends in
// between finishes the work at its next start. Runs on the store's thread.
#pragma once

#include <string>
#include <vector>

#include "store/store.h"

namespace sandbar::sandbox {

struct Doomed {
  store::SandboxKey key;
  bool with_snapshots = false;  // and the snapshots that nobody else stands on
};

// The sandbox need not exist yet: a race marks its forks before it makes them.
Result<> MarkForDeletion(store::Store& store, const store::SandboxKey& key, bool with_snapshots);
Result<> SpareFromDeletion(store::Store& store, const store::SandboxKey& key);
Result<std::vector<Doomed>> MarkedForDeletion(store::Store& store);
// The record, its snapshots if they are to go, and last the mark. Returns the sessions that it had.
Result<std::vector<std::string>> RemoveSandbox(store::Store& store, const store::SandboxKey& key, bool with_snapshots);

}  // namespace sandbar::sandbox
