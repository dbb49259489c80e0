// Chores for snapshots: marks expired ones, removes layers from disk that nothing needs, and makes long chains of
// layers into one. Single loop; owned by the domain.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "sandbox/core.h"
#include "sandbox/snapshots/layer_keeper.h"

namespace sandbar::sandbox {

class SnapshotCleaner {
 public:
  SnapshotCleaner(Core* core, LayerKeeper* layers) : core_(core), layers_(layers) {}

  Task<> RemoveUnused();
  Task<> FlattenLongChains();

 private:
  Task<bool> AllGood(std::vector<std::string> layers);

  Core* core_;
  LayerKeeper* layers_;
  std::set<std::string> unflattened_;  // snapshots on damaged or unreadable layers
};

}  // namespace sandbar::sandbox
