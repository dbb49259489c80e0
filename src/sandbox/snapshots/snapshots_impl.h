// The role Snapshots. Single loop; owned by the domain.
#pragma once

#include "sandbox/core.h"
#include "sandbox/records.h"
#include "sandbox/sessions/stopper.h"
#include "sandbox/snapshots/converter.h"
#include "sandbox/snapshots/deleted_traces.h"
#include "sandbox/snapshots/layer_keeper.h"
#include "sandbox/snapshots/snapshots.h"

namespace sandbar::sandbox {

class SnapshotsImpl final : public Snapshots {
 public:
  SnapshotsImpl(Core* core, Records* records, Stopper* stopper, LayerKeeper* layers, Converter* converter,
                DeletedTraces* traces)
      : core_(core), records_(records), stopper_(stopper), layers_(layers), converter_(converter), traces_(traces) {}

  Task<SnapshotTaken> Take(Scope scope, std::string session, std::optional<int64_t> expiration_ms) override;
  Task<Page<store::Snapshot>> List(Scope scope, ListQuery query) override;
  Task<store::Snapshot> Get(Scope scope, std::string id) override;
  Task<store::Snapshot> Delete(Scope scope, std::string id) override;
  Task<SnapshotTree> Tree(Scope scope, std::string id, int limit, bool descendants) override;
  Task<store::Snapshot> Verify(Scope scope, std::string id) override;
  Task<engine::LayerDiff> Diff(Scope scope, std::string before, std::string after) override;

 private:
  Task<SnapshotTreeNode> TreeNode(store::Snapshot snapshot);
  // The layers of a snapshot, given by its id or by a sandbox; only those of its image with `base`.
  Task<engine::LayerStack> StackOf(Scope scope, std::string what, bool base);

  Core* core_;
  Records* records_;
  Stopper* stopper_;
  LayerKeeper* layers_;
  Converter* converter_;
  DeletedTraces* traces_;
};

}  // namespace sandbar::sandbox
