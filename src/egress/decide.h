// What a policy says about a name, an address, or a connection as far as it has been read. Pure functions over values;
// any thread. The same judgement serves DNS, connections, a policy change (open ones are judged again) and trying a
// policy out on recorded attempts.
#pragma once

#include <string>

#include "egress/egress.h"
#include "egress/first_bytes.h"
#include "egress/policy.h"

namespace sandbar::egress {

struct Verdict {
  bool allowed = false;
  std::string rule;    // what decided: `allow "*.x.com"`, "deny-all", "subnets.deny 10.0.0.0/8", "no rule allows it"
  std::string reason;  // when denied: one sentence
  std::string hint;    // when denied: the smallest change that would allow it
  const DomainEntry* entry = nullptr;  // of a name under a custom policy; lives as long as the policy
};

// `name` canonical.
Verdict JudgeName(const CompiledPolicy& policy, const std::string& name);
Verdict JudgeAddress(const CompiledPolicy& policy, const IpAddress& address);

struct Approach {
  Endpoint target;
  std::string hint;  // the name that a made-up target address stands for; empty: the address is the guest's own choice
  const Opening* opening = nullptr;
};

struct Decision {
  enum class Kind {
    kRead,         // not clear yet: read the opening
    kDialAddress,  // the target itself, nothing is read
    kDialName,     // `name`, resolved here; nothing more is read
    kDialOpened,   // `name`, but only at addresses that subnets.allow opens
    kIntercept,    // its requests have to be read; `name` is empty for plain HTTP
    kWait,         // the policy is being changed, and the change matters here
    kRefuse
  };
  Kind kind = Kind::kRefuse;
  std::string name;
  Verdict verdict;
};

// `config`: the operator's switches.
Decision Decide(const CompiledPolicy& policy, const Approach& approach, const EgressConfig& config);
// While policies are being set: what the one in force decides, if all of `also` decide the same. A refusal of any wins.
Decision DecideAll(const CompiledPolicy& policy, const std::vector<PolicyRef>& also, const Approach& approach,
                   const EgressConfig& config);

}  // namespace sandbar::egress
