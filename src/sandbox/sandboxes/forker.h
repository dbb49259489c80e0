// Forks sandboxes: a copy of the source's record with changes, which boots from the source's newest snapshot, or
// continues where its machine is (memory/live_memory.h). Single loop; owned by the domain.
#pragma once

#include <string>

#include "sandbox/core.h"
#include "sandbox/memory/live_memory.h"
#include "sandbox/records.h"
#include "sandbox/sandboxes/boot_source.h"
#include "sandbox/sandboxes/creator.h"

namespace sandbar::sandbox {

class Forker {
 public:
  Forker(Core* core, Records* records, BootSources* sources, Creator* creator, LiveMemory* live)
      : core_(core), records_(records), sources_(sources), creator_(creator), live_(live) {}

  // Sandboxes::Fork.
  Task<SandboxView> Fork(Scope scope, std::string name, ForkSpec spec);

 private:
  // The record of the fork, and its policy. Secrets are opened here and sealed anew for the fork.
  Result<NewSandbox> CopyRecord(const store::Sandbox& source, ForkSpec spec) const;

  Core* core_;
  Records* records_;
  BootSources* sources_;
  Creator* creator_;
  LiveMemory* live_;
};

}  // namespace sandbar::sandbox
