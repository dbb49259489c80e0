// What a policy could look like, judged by what a sandbox tried: the smallest one that would have let it through, and
// what would change under a candidate. Values only; any thread.
#pragma once

#include <string>
#include <vector>

#include "egress/egress.h"
#include "egress/policy.h"

namespace sandbar::egress {

// Exact domains for what had a name and a protocol in which names are matched, single addresses for the rest, sorted.
// Deny-all when nothing was tried.
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
