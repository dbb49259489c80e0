// The role Sandboxes, as one door to the types that do the work. Calls that change something run to their end when the
// caller goes away. Single loop; owned by the domain.
#pragma once

#include <string>
#include <vector>

#include "sandbox/core.h"
#include "sandbox/memory/live_memory.h"
#include "sandbox/records.h"
#include "sandbox/sandboxes/creator.h"
#include "sandbox/sandboxes/deleter.h"
#include "sandbox/sandboxes/forker.h"
#include "sandbox/sandboxes/resumer.h"
#include "sandbox/sandboxes/updater.h"

namespace sandbar::sandbox {

class SandboxesImpl final : public Sandboxes {
 public:
  struct Workers {
    ActiveSessions* active;
    Records* records;
    Creator* creator;
    Updater* updater;
    Deleter* deleter;
    Forker* forker;
    Resumer* resumer;
    LiveMemory* live;
  };
  SandboxesImpl(Core* core, Workers workers) : core_(core), workers_(workers) {}

  Task<SandboxView> Create(Scope scope, CreateSpec spec) override;
  Task<SandboxView> Get(Scope scope, std::string name, bool resume) override;
  Task<Page<store::Sandbox>> List(Scope scope, ListQuery query) override;
  Task<store::Sandbox> Update(Scope scope, std::string name, UpdateSpec spec) override;
  Task<store::Sandbox> Delete(Scope scope, std::string name, bool orphan_snapshots) override;
  Task<SandboxView> Fork(Scope scope, std::string name, ForkSpec spec) override;
  Task<SandboxView> Pause(Scope scope, std::string name) override;
  Task<SandboxView> Resume(Scope scope, std::string name, ResumeFrom from) override;
  Task<std::vector<store::Notice>> Notices(Scope scope, std::string name) override;
  Task<std::vector<store::ProjectUsage>> Usage(Scope scope) override;

 private:
  Core* core_;
  Workers workers_;
};

}  // namespace sandbar::sandbox
