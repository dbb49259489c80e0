// Promotion: the newest snapshot of one sandbox becomes the head of another. Single loop; owned by the domain.
#pragma once

#include <optional>
#include <string>

#include "sandbox/core.h"
#include "sandbox/records.h"
#include "sandbox/sandboxes/boot_source.h"
#include "sandbox/sessions/stopper.h"

namespace sandbar::sandbox {

class Promotion {
 public:
  Promotion(Core* core, ActiveSessions* active, Records* records, Stopper* stopper, BootSources* sources)
      : core_(core), active_(active), records_(records), stopper_(stopper), sources_(sources) {}

  // Races::Promote.
  Task<store::Sandbox> Promote(Scope scope, std::string fork, std::optional<std::string> into);

 private:
  // Stops the session and keeps its files. The snapshot counts as made by a stop, not as made by hand.
  Task<> StopWithSnapshot(std::string session);

  Core* core_;
  ActiveSessions* active_;
  Records* records_;
  Stopper* stopper_;
  BootSources* sources_;
};

}  // namespace sandbar::sandbox
