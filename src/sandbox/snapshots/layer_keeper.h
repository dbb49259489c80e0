// Keeps the layers of snapshots durable: scans every new layer once, which writes its manifest and reaches the disk,
// and compares old layers with their manifests from time to time. Damage is noted on snapshots and sandboxes
// (layer_records.h). Single loop; owned by the domain.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "sandbox/core.h"
#include "sandbox/sessions/active_sessions.h"
#include "sandbox/shared_result.h"
#include "sandbox/wakeable_loop.h"

namespace sandbar::sandbox {

// The part of a disk limit that a scanned layer takes.
uint64_t DiskBytes(const store::Layer& layer);

class LayerKeeper {
 public:
  LayerKeeper(Core* core, ActiveSessions* active) : core_(core), active_(active), loop_(core->ex) {}

  // At start: notes layers that are missing on disk, and snapshots that a crash of the host may have cut.
  Task<> CheckAtStart();
  // Scans until the domain closes.
  Task<> Run();
  // There is a new layer: scan it soon.
  void Seal() {
    retry_ = true;
    loop_.Wake();
  }

  // Scans the layer now, or waits for the scan that is under way.
  Task<store::Layer> Check(std::string name);
  Task<> CheckAll(std::vector<std::string> layers);
  // With verify = "strict": checks all layers now, and answers kConflict for a damaged snapshot.
  Task<> RefuseDamaged(store::Snapshot snapshot);

 private:
  Task<store::Layer> CheckNow(std::string name);
  Task<store::Layer> Scan(std::string name);
  Task<> StartScans();
  Task<> SealOrScrub(std::string name, std::string owner);
  // A layer was scanned: machines that stand on it may have more disk than was assumed.
  Task<> CorrectLimits(store::Layer layer);

  Core* core_;
  ActiveSessions* active_;
  WakeableLoop loop_;                 // there is a new layer, or a scan has ended
  bool retry_ = false;                // forget not_now_
  std::set<std::string> unreadable_;  // layers beyond the layer scanner's limits
  std::set<std::string> not_now_;     // layers whose last scan failed
  std::set<std::string> scanning_;    // owners of layers that are being scanned
  std::string last_scanned_;          // the last of them
  std::map<std::string, std::shared_ptr<SharedResult<store::Layer>>> checking_;  // layers being scanned, by name
};

}  // namespace sandbar::sandbox
