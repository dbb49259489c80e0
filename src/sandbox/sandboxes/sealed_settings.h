// The settings of a sandbox that its record keeps sealed: environment variables and network policy.
#pragma once

#include <map>
#include <string>

#include "egress/policy.h"
#include "sandbox/core.h"
#include "store/records.h"

namespace sandbar::sandbox {

// Empty, with an error in the log, when they cannot be opened: a sandbox without its variables can still be used and
// stopped.
std::map<std::string, std::string> OpenEnv(const Core& core, const store::Sandbox& sandbox);

// The sandbox's policy, compiled; null when it was never set.
Result<egress::PolicyRef> PolicyOf(const Core& core, const store::Sandbox& sandbox);
// The same for a start. A policy that cannot be used does not keep the sandbox from starting: the result is deny-all,
// and a notice tells the owner.
Task<egress::PolicyRef> PolicyToStartWith(Core* core, store::Sandbox sandbox);

}  // namespace sandbar::sandbox
