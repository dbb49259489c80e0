#include "egress/policy_advice.h"

#include <set>

#include "egress/decide.h"

namespace sandbar::egress {

namespace {

bool ByName(const Attempt& attempt) {
  return !attempt.host.empty() && attempt.kind != "tcp";
}

// A name that was asked for and resolved is followed by the connection that counts; only a refused one stands for it.
// What the operator's own rules refuse no policy can allow.
bool Matters(const Attempt& attempt) {
  if (attempt.rule == kServerRule) return false;
  if (attempt.kind != "dns") return true;
  return !attempt.allowed && !attempt.host.ends_with(".arpa");
}

Decision Decide(const CompiledPolicy& policy, const Attempt& attempt) {
  auto address = ParseAddress(attempt.address);
  Decision by_address;
  if (address) by_address = DecideAddress(policy, *address);
  // A subnet decides first when it says anything; then the name, where the protocol shows one.
  bool subnet = by_address.rule.starts_with("subnets.");
  if (address && (subnet || !ByName(attempt))) return by_address;
  Decision by_name = DecideName(policy, attempt.host);
  if (!ByName(attempt) && by_name.entry != nullptr) return {.rule = "no rule allows it"};
  return by_name;
}

}  // namespace

NetworkPolicy Suggest(const std::vector<Attempt>& attempts) {
  std::set<std::string> names, cidrs;
  for (const Attempt& attempt : attempts) {
    if (!Matters(attempt)) continue;
    if (ByName(attempt) && CanonicalName(attempt.host)) {
      names.insert(attempt.host);
    } else if (auto address = ParseAddress(attempt.address)) {
      cidrs.insert(attempt.address + (address->is_v4() ? "/32" : "/128"));
    }
  }
  NetworkPolicy out;
  if (names.empty() && cidrs.empty()) return out;
  out.mode = EgressMode::kCustom;
  for (const std::string& name : names) out.domains.push_back({.pattern = name, .rules = {}});
  out.allow_cidrs.assign(cidrs.begin(), cidrs.end());
  return out;
}

std::vector<AttemptChange> Replay(const std::vector<Attempt>& attempts, const CompiledPolicy& current,
                                  const CompiledPolicy& candidate) {
  std::vector<AttemptChange> out;
  for (const Attempt& attempt : attempts) {
    if (attempt.rule == kServerRule) continue;  // no policy changes that
    Decision now = Decide(current, attempt), then = Decide(candidate, attempt);
    if (now.allowed == then.allowed) continue;
    out.push_back({.attempt = attempt,
                   .allowed_now = now.allowed,
                   .allowed_then = then.allowed,
                   .rule_now = std::move(now.rule),
                   .rule_then = std::move(then.rule)});
  }
  return out;
}

}  // namespace sandbar::egress
