// What one machine's connections and DNS share: policy in force, budgets, counters, names, the record of denials and
// attempts. Single loop; owned by the Egress, outlives its tasks.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "async/task.h"
#include "egress/bandwidth.h"
#include "egress/egress.h"
#include "egress/name_table.h"
#include "egress/splice.h"

namespace sandbar::egress {

inline constexpr size_t kMaxDenials = 256;
inline constexpr size_t kMaxAttempts = 512;

struct EgressState {
  const EgressConfig* config = nullptr;
  PolicyRef policy;                  // never null
  std::vector<PolicyRef> also{};     // policies that are being set: only what they allow as well may pass
  std::string failed_change{};       // why the newest of `also` cannot be set; empty: it is on its way
  std::unique_ptr<Event> changed{};  // when one of these three changed; set by the Egress
  Interceptor* interceptor = nullptr;
  Bandwidth bandwidth;
  EgressCounters counters{};
  NameTable names{};
  PipeCache pipes{};
  std::deque<Denial> denials{};
  std::vector<Attempt> attempts{};
  // While SetPolicy or Tighten looks at all connections: which entries of two policies have the same rules.
  std::map<std::pair<const DomainEntry*, const DomainEntry*>, bool> same_rules{};
  size_t open = 0;       // connections charged, from accept to close
  size_t half_open = 0;  // of these, not yet carrying bytes

  // All policies at once: none of them may forbid what passes.
  template <class F>
  bool AllPolicies(F allows) const {
    return allows(*policy) && std::ranges::all_of(also, [&](const PolicyRef& p) { return allows(*p); });
  }
  bool strict() const { return config->strict; }
  // Counts and remembers; a repetition renews the one that is there, so a loop cannot flush the others.
  void Deny(Denial denial);
  // `target` is "host" or "host:port".
  void Deny(std::string kind, std::string target, std::string reason, std::string hint);
  // Remembers what was tried; times and count are filled in.
  void Note(Attempt attempt);
};

// What would allow an address that the operator's rules keep from being dialled.
std::string AddressHint(const IpAddress& address);

}  // namespace sandbar::egress
