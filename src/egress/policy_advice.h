// Advice about policies, from the recorded attempts of a sandbox. Suggest gives the smallest policy that would have
// allowed them. Replay gives the attempts that another policy would treat differently. Values only; any thread.
#pragma once

#include <string>
#include <vector>

#include "egress/egress.h"
#include "egress/policy.h"

namespace sandbar::egress {

// Allows the exact domain of each attempt that has a name and a protocol that carries names, and the single address of
// each other attempt; sorted. Deny-all when there are no attempts.
NetworkPolicy Suggest(const std::vector<Attempt>& attempts);

struct AttemptChange {
  Attempt attempt;
  bool allowed_now = false, allowed_then = false;
  std::string rule_now, rule_then;  // what decides
};
// The attempts that `candidate` would treat otherwise than `current`, in their order.
std::vector<AttemptChange> Replay(const std::vector<Attempt>& attempts, const CompiledPolicy& current,
                                  const CompiledPolicy& candidate);

}  // namespace sandbar::egress
