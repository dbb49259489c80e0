// What one machine's connections and DNS share: policy in force, budgets, counters, the ring of denials. Single loop;
// owned by the Egress, outlives its tasks.
#pragma once

#include <deque>
#include <string>

#include "net/egress.h"

namespace sandbar::net {

inline constexpr size_t kMaxDenials = 256;
inline constexpr std::string_view kDenyAllReason = "the sandbox's network policy is deny-all";

struct EgressState {
  const EgressConfig* config = nullptr;
  EgressPolicy policy;
  EgressCounters counters;
  std::deque<Denial> denials;
  size_t open = 0;       // connections charged, from accept to close
  size_t half_open = 0;  // of these, not yet carrying bytes

  bool DeniesAll() const { return policy.mode == EgressMode::kDenyAll; }
  // Counts and remembers; a repetition of the newest denial only renews its time, so a loop cannot flush the others.
  void Deny(std::string kind, std::string target, std::string reason, std::string hint);
};

// What would allow it.
std::string DenyAllHint();
std::string AddressHint(const Endpoint& target);

}  // namespace sandbar::net
