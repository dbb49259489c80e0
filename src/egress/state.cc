#include "egress/state.h"

#include <algorithm>
#include <charconv>

#include "base/ids.h"

namespace sandbar::egress {

void EgressState::Deny(Denial denial) {
  ++counters.denied;
  denial.at_ms = NowMs();
  if (!denial.host.empty()) {
    Attempt attempt{.kind = denial.kind, .port = denial.port, .reason = denial.reason};
    attempt.rule = denial.rule;
    (ParseAddress(denial.host) ? attempt.address : attempt.host) = denial.host;
    Note(std::move(attempt));
  }
  auto same = std::ranges::find_if(denials, [&](const Denial& d) {
    return d.port == denial.port && d.kind == denial.kind && d.target == denial.target && d.reason == denial.reason;
  });
  if (same != denials.end()) {
    denial.count += same->count;
    denials.erase(same);  // the newest is last
  }
  if (denials.size() == kMaxDenials) denials.pop_front();
  denials.push_back(std::move(denial));
}

void EgressState::Deny(std::string kind, std::string target, std::string reason, std::string hint) {
  Denial denial;
  denial.kind = std::move(kind);
  size_t colon = target.rfind(':');
  denial.host = target.substr(0, colon);
  std::string_view digits = std::string_view(target).substr(colon == std::string::npos ? target.size() : colon + 1);
  std::from_chars(digits.data(), digits.data() + digits.size(), denial.port);
  denial.target = std::move(target);
  denial.rule = reason;
  denial.reason = std::move(reason);
  denial.hint = std::move(hint);
  Deny(std::move(denial));
}

void EgressState::Note(Attempt attempt) {
  attempt.first_ms = attempt.last_ms = NowMs();
  auto same = std::ranges::find_if(attempts, [&](const Attempt& a) {
    return a.port == attempt.port && a.kind == attempt.kind && a.host == attempt.host && a.address == attempt.address;
  });
  if (same != attempts.end()) {
    attempt.first_ms = same->first_ms;
    attempt.count += same->count;
    *same = std::move(attempt);
    return;
  }
  if (attempts.size() < kMaxAttempts) {
    attempts.push_back(std::move(attempt));
    return;
  }
  *std::ranges::min_element(attempts, {}, &Attempt::last_ms) = std::move(attempt);
}

std::string AddressHint(const IpAddress& address) {
  return "the server's operator can add \"" + ToString(address) + "\" to network.allow_addresses";
}

}  // namespace sandbar::egress
