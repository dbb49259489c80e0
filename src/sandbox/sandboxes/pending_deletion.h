// Sandboxes that have to go: on record before the first of their files is given up, so that a server that ends in
// between finishes the work at its next start. Runs on the store's thread.
#pragma once

#include <string>
#include <vector>

#include "store/store.h"

namespace sandbar::sandbox {

struct PendingDeletion {
  store::SandboxKey key;
  bool with_snapshots = false;  // and the snapshots that nobody else stands on
  int64_t created_at = 0;       // which one of that name; 0: whichever there is
  bool Means(const store::Sandbox& s) const {
    return store::KeyOf(s) == key && (created_at == 0 || created_at == s.created_at);
  }
};

Result<> AddPendingDeletion(store::Store& store, const PendingDeletion& pending);
Result<> CancelDeletion(store::Store& store, const store::SandboxKey& key);
Result<std::vector<PendingDeletion>> PendingDeletions(store::Store& store);
// Its snapshots (see DeleteSnapshotsOf), the record, and last the mark. Returns the sessions that it had.
Result<std::vector<std::string>> RemoveSandbox(store::Store& store, const store::SandboxKey& key, bool with_snapshots);

}  // namespace sandbar::sandbox
