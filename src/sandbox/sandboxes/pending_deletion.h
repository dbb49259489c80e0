// Deletions that are under way: on record before the first file is removed, so that a server that ends in between
// finishes the work at its next start. All functions run on the store's thread.
#pragma once

#include <string>
#include <vector>

#include "store/store.h"

namespace sandbar::sandbox {

struct PendingDeletion {
  store::SandboxKey key;
  bool with_snapshots = false;  // and the snapshots that no other sandbox uses
  int64_t created_at = 0;       // of the sandbox that is meant; 0: any of that name
  bool Means(const store::Sandbox& s) const {
    return store::KeyOf(s) == key && (created_at == 0 || created_at == s.created_at);
  }
};

Result<> AddPendingDeletion(store::Journal& journal, const PendingDeletion& pending);
Result<> CancelDeletion(store::Journal& journal, const store::SandboxKey& key);
Result<std::vector<PendingDeletion>> PendingDeletions(store::Journal& journal);
// Removes its snapshots (see DeleteSnapshotsOf), the record, and last the pending deletion. Returns its session ids.
Result<std::vector<std::string>> RemoveSandbox(store::Store& store, const store::SandboxKey& key, bool with_snapshots);

}  // namespace sandbar::sandbox
