// What a policy decides about a name, an address, or a connection as far as it has been read. Functions over values
// without I/O, for any thread. DNS, connections, a change of policy (open connections are decided again) and trying a
// policy out on recorded attempts all use them.
//
//   Decision decision = DecideName(*policy, "api.example");
//   if (!decision.allowed) …                              // decision.rule, .reason and .hint go into a Denial
//
// Two words: a Decision is what a policy says, a Denial (egress.h) is the record of one that said no.
#pragma once

#include <string>

#include "egress/egress.h"
#include "egress/first_bytes.h"
#include "egress/policy.h"

namespace sandbar::egress {

// Of a policy, about one name or address.
struct Decision {
  bool allowed = false;
  std::string rule;    // what decided: `allow "*.x.com"`, "deny-all", "subnets.deny 10.0.0.0/8", "no rule allows it"
  std::string reason;  // when denied: one sentence
  std::string hint;    // when denied: the smallest change that would allow it
  const DomainEntry* entry = nullptr;  // of a name under a custom policy; lives as long as the policy
};

// `name` canonical.
Decision DecideName(const CompiledPolicy& policy, const std::string& name);
Decision DecideAddress(const CompiledPolicy& policy, const IpAddress& address);

// What is known of a connection when it is decided about.
struct Approach {
  Endpoint target;
  std::string name;  // that a made-up target address stands for; empty: the address is the guest's own choice
  const FirstBytes* first_bytes = nullptr;
};

// What happens to a connection, and the decision that led to it.
struct ConnectionPlan {
  enum class Kind {
    kRead,         // not clear yet: read the first bytes
    kDialAddress,  // the target itself, nothing is read
    kDialName,     // `name`, resolved here; nothing more is read
    kDialOpened,   // `name`, but only at addresses that subnets.allow opens
    kIntercept,    // its requests have to be read; `name` is empty for plain HTTP
    kWait,         // the policy is being changed, and the change matters here
    kDeny          // `decision` says why
  };
  Kind kind = Kind::kDeny;
  std::string name;
  Decision decision;
};

// `config`: the operator's switches.
ConnectionPlan PlanConnection(const CompiledPolicy& policy, const Approach& approach, const EgressConfig& config);
// While policies are being set: the plan of the one in force, if all of `also` lead to the same. A denial by any of
// them wins.
ConnectionPlan PlanUnderAll(const CompiledPolicy& policy, const std::vector<PolicyRef>& also, const Approach& approach,
                            const EgressConfig& config);

}  // namespace sandbar::egress
