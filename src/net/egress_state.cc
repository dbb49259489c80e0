#include "net/egress_state.h"

#include "base/ids.h"

namespace sandbar::net {

void EgressState::Deny(std::string kind, std::string target, std::string reason, std::string hint) {
  ++counters.denied;
  int64_t now = NowMs();
  if (!denials.empty()) {
    Denial& last = denials.back();
    if (last.kind == kind && last.target == target && last.reason == reason) {
      last.at_ms = now;
      return;
    }
  }
  if (denials.size() == kMaxDenials) denials.pop_front();
  denials.push_back({now, std::move(kind), std::move(target), std::move(reason), std::move(hint)});
}

std::string DenyAllHint() {
  return "set the sandbox's networkPolicy to \"allow-all\"";
}

std::string AddressHint(const Endpoint& target) {
  return "the server's operator can add \"" + ToString(target.address) + "\" to network.allow_addresses";
}

}  // namespace sandbar::net
