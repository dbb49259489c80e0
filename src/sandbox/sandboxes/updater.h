// Changes the record of a sandbox, and passes changes that take effect at once on to its session. Single loop; owned by
// the domain.
#pragma once

#include <string>

#include "sandbox/core.h"
#include "sandbox/records.h"
#include "sandbox/sandboxes/boot_source.h"

namespace sandbar::sandbox {

class Updater {
 public:
  Updater(Core* core, ActiveSessions* active, Records* records, BootSources* sources)
      : core_(core), active_(active), records_(records), sources_(sources) {}

  // Sandboxes::Update.
  Task<store::Sandbox> Update(Scope scope, std::string name, UpdateSpec spec);

 private:
  // An update that raises the demanded isolation, or moves the sandbox to another snapshot: can this server keep it?
  Task<> CheckDemand(Scope scope, std::string name, UpdateSpec spec);

  Core* core_;
  ActiveSessions* active_;
  Records* records_;
  BootSources* sources_;
};

}  // namespace sandbar::sandbox
