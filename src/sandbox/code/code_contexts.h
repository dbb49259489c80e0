// The role CodeContexts: code that runs in interpreters of a sandbox, given by the sandbox's name (code.h explains
// contexts and cells). Single loop. Every call takes the caller's Scope.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "async/task.h"
#include "sandbox/code/code.h"
#include "sandbox/scope.h"

namespace sandbar::sandbox {

// Run and Create resume a stopped sandbox. An unknown context is kNotFound, a context that runs something is kConflict.
class CodeContexts {
 public:
  virtual ~CodeContexts() = default;
  virtual Task<std::unique_ptr<CodeStream>> Run(Scope scope, std::string name, CodeSpec spec) = 0;
  virtual Task<CodeContextInfo> Create(Scope scope, std::string name, CodeContextSpec spec) = 0;
  virtual Task<std::vector<CodeContextInfo>> List(Scope scope, std::string name) = 0;
  virtual Task<CodeContextInfo> Change(Scope scope, std::string name, std::string id, ContextChange change) = 0;
};

}  // namespace sandbar::sandbox
