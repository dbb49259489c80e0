// Creates sandboxes: checks the request, records the sandbox while its machine boots, and starts its first session.
// Forks end here too. Single loop; owned by the domain.
#pragma once

#include <optional>

#include "sandbox/core.h"
#include "sandbox/sandboxes/boot_source.h"
#include "sandbox/sandboxes/launcher.h"
#include "sandbox/sandboxes/sandboxes.h"
#include "sandbox/sessions/pool.h"
#include "sandbox/sessions/stopper.h"

namespace sandbar::sandbox {

struct NewSandbox {
  store::Sandbox record;  // variables in clear, no policy
  BootSource boot;
  egress::PolicyRef policy;  // null: never set
  std::optional<SourceSpec> source;
  std::optional<RestoredMemory> restored;
};

class Creator {
 public:
  Creator(Core* core, ActiveSessions* active, Stopper* stopper, Pool* pool, Launcher* launcher, BootSources* sources)
      : core_(core), active_(active), stopper_(stopper), pool_(pool), launcher_(launcher), sources_(sources) {}

  // Sandboxes::Create.
  Task<SandboxView> Create(Scope scope, CreateSpec spec);
  Task<SandboxView> CreateFrom(Scope scope, NewSandbox wanted);

 private:
  Core* core_;
  ActiveSessions* active_;
  Stopper* stopper_;
  Pool* pool_;
  Launcher* launcher_;
  BootSources* sources_;
};

}  // namespace sandbar::sandbox
