// Resumes sandboxes: returns the session that runs, or starts a new one from the snapshot of the last, with its memory
// when the stop kept it. Single loop; owned by the domain.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "sandbox/core.h"
#include "sandbox/memory/memory_keeper.h"
#include "sandbox/records.h"
#include "sandbox/sandboxes/boot_source.h"
#include "sandbox/sandboxes/launcher.h"
#include "sandbox/sessions/stopper.h"

namespace sandbar::sandbox {

class Resumer {
 public:
  Resumer(Core* core, ActiveSessions* active, Records* records, Stopper* stopper, Launcher* launcher,
          BootSources* sources, MemoryKeeper* memory)
      : core_(core),
        active_(active),
        records_(records),
        stopper_(stopper),
        launcher_(launcher),
        sources_(sources),
        memory_(memory) {}

  // Sandboxes::Resume. Waits for a stop that is under way. Callers that ask while it boots get the same session.
  Task<SandboxView> Resume(Scope scope, std::string name, ResumeFrom from);
  // The same, for calls that need the machine.
  Task<std::shared_ptr<Session>> ResumeForUse(Scope scope, std::string name);

 private:
  Task<SandboxView> Start(store::Sandbox sandbox, ResumeFrom from);
  // With a notice: the memory could not be used, and nobody had asked for it.
  Task<SandboxView> StartFromDisk(store::Sandbox sandbox, std::string why);

  Core* core_;
  ActiveSessions* active_;
  Records* records_;
  Stopper* stopper_;
  Launcher* launcher_;
  BootSources* sources_;
  MemoryKeeper* memory_;
  std::map<std::string, std::shared_ptr<SharedResult<SandboxView>>> starting_;  // by team, project and name
};

}  // namespace sandbar::sandbox
