// The role CodeContexts: finds the session of a sandbox, and holds it in use while a cell is read. Single loop; owned
// by the domain.
#pragma once

#include "sandbox/code/code_contexts.h"
#include "sandbox/core.h"
#include "sandbox/records.h"
#include "sandbox/sandboxes/resumer.h"

namespace sandbar::sandbox {

class CodeContextsImpl final : public CodeContexts {
 public:
  CodeContextsImpl(Core* core, Records* records, ActiveSessions* active, Resumer* resumer)
      : core_(core), records_(records), active_(active), resumer_(resumer) {}

  Task<std::unique_ptr<CodeStream>> Run(Scope scope, std::string name, CodeSpec spec) override;
  Task<CodeContextInfo> Create(Scope scope, std::string name, CodeContextSpec spec) override;
  Task<std::vector<CodeContextInfo>> List(Scope scope, std::string name) override;
  Task<CodeContextInfo> Change(Scope scope, std::string name, std::string id, ContextChange change) override;

 private:
  Core* core_;
  Records* records_;
  ActiveSessions* active_;
  Resumer* resumer_;
};

}  // namespace sandbar::sandbox
