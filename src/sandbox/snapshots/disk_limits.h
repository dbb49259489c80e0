// How much of a sandbox's disk limit its files take: all that it holds, not only what its current session wrote. The
// engine counts what a machine writes. The files that the session began with are counted here: exactly once a scan has
// read them, and until then by the sizes that earlier sessions reported. Both may be too low; the spawner corrects
// them. Single loop; owned by the domain.
#pragma once

#include <cstdint>

#include "sandbox/core.h"
#include "sandbox/snapshots/layer_keeper.h"

namespace sandbar::sandbox {

class DiskLimits {
 public:
  DiskLimits(Core* core, LayerKeeper* layers) : core_(core), layers_(layers) {}

  // The bytes of its disk limit that the session's snapshot takes. Exact when they may be more than `enough`.
  Task<uint64_t> InheritedBytes(store::Session row, uint64_t enough);
  // kBadRequest when a new sandbox on this snapshot would be over its limit from the start.
  Task<> CheckFits(store::Snapshot snapshot);

 private:
  // Exact for a layer that was scanned, otherwise what earlier sessions reported. Scans the layer now when the size may
  // be more than `enough`.
  Task<uint64_t> BytesOf(store::Snapshot snapshot, uint64_t enough);

  Core* core_;
  LayerKeeper* layers_;
};

}  // namespace sandbar::sandbox
