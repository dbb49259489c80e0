// What one machine's connections and DNS share: policy in force, budgets, counters, names, the record of denials and
// attempts. Single loop; owned by the Egress, outlives its tasks.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "net/bandwidth.h"
#include "net/egress.h"
#include "net/name_table.h"
#include "net/splice.h"

namespace sandbar::net {

inline constexpr size_t kMaxDenials = 256;
inline constexpr size_t kMaxAttempts = 512;

struct EgressState {
  const EgressConfig* config = nullptr;
  PolicyRef policy;  // never null
  Interceptor* interceptor = nullptr;
  Bandwidth bandwidth;
  EgressCounters counters{};
  NameTable names{};
  PipeCache pipes{};
  std::deque<Denial> denials{};
  std::vector<Attempt> attempts{};
  size_t open = 0;       // connections charged, from accept to close
  size_t half_open = 0;  // of these, not yet carrying bytes

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

}  // namespace sandbar::net
