// Machines that go on with their memory: pausing a sandbox, and forking one that runs. Single loop; owned by the
// domain.
#pragma once

#include <string>

#include "sandbox/core.h"
#include "sandbox/memory/memory_keeper.h"
#include "sandbox/records.h"
#include "sandbox/sandboxes/boot_source.h"
#include "sandbox/sandboxes/creator.h"
#include "sandbox/sessions/stopper.h"

namespace sandbar::sandbox {

class LiveMemory {
 public:
  LiveMemory(Core* core, ActiveSessions* active, Records* records, Stopper* stopper, MemoryKeeper* keeper,
             BootSources* sources, Creator* creator)
      : core_(core),
        active_(active),
        records_(records),
        stopper_(stopper),
        keeper_(keeper),
        sources_(sources),
        creator_(creator) {}

  // Sandboxes::Pause.
  Task<SandboxView> Pause(Scope scope, std::string name);
  // A fork that continues where the machine of `source` is. `wanted` has the fork's record and policy.
  Task<SandboxView> Fork(Scope scope, store::Sandbox source, NewSandbox wanted);

 private:
  // kUnsupported, with the engines that can, when the session's memory cannot be kept.
  Result<> CheckSupported(const Session& session) const;
  Result<> CheckFork(const Session& session, const store::Sandbox& fork) const;
  Task<BootSource> SourceFor(store::Session running, std::string head);

  Core* core_;
  ActiveSessions* active_;
  Records* records_;
  Stopper* stopper_;
  MemoryKeeper* keeper_;
  BootSources* sources_;
  Creator* creator_;
};

}  // namespace sandbar::sandbox
