#include "egress/decide.h"

namespace sandbar::egress {

namespace {

using Kind = Decision::Kind;

// `smallest`: the policy that would let it through.
Verdict ByMode(EgressMode mode, const std::string& smallest) {
  if (mode == EgressMode::kAllowAll) return {.allowed = true, .rule = "allow-all", .reason = "", .hint = ""};
  return {.allowed = false,
          .rule = "deny-all",
          .reason = "the sandbox's network policy is deny-all",
          .hint = "set the sandbox's networkPolicy to " + smallest + " or \"allow-all\""};
}

Verdict Denied(std::string reason, std::string hint) {
  return {.allowed = false, .rule = "no rule allows it", .reason = std::move(reason), .hint = std::move(hint)};
}

Decision Refused(Verdict verdict) {
  return {.kind = Kind::kRefuse, .name = {}, .verdict = std::move(verdict)};
}

// "192.0.2.1/32"
std::string JustThis(const IpAddress& address) {
  return ToString(address) + (address.is_v4() ? "/32" : "/128");
}

std::string AllowAddressHint(const IpAddress& address) {
  return "add \"" + JustThis(address) + "\" to subnets.allow";
}

Decision DecideTls(const CompiledPolicy& policy, const Approach& approach, const EgressConfig& config) {
  const wire::ClientHello& hello = *approach.opening->hello;
  if (!hello.server_name) {
    return Refused(Denied("TLS without a server name (SNI) cannot be matched to a domain",
                          "connect by name, or allow the address with subnets.allow"));
  }
  auto name = CanonicalName(*hello.server_name);
  if (!name) return Refused(Denied("TLS with a server name that is none: " + name.error().message, "connect by name"));
  Verdict verdict = JudgeName(policy, *name);
  if (!verdict.allowed) return {.kind = Kind::kRefuse, .name = *std::move(name), .verdict = std::move(verdict)};
  bool ruled = !verdict.entry->rules.empty();
  std::string problem, hint;
  if (hello.ech && !ruled && !config.allow_ech) {
    problem = "Encrypted Client Hello (or a decoy of it) hides which server is meant";
    hint = "turn ECH off in the client; the server's operator can set network.allow_ech";
  } else if (ruled && approach.opening->postgres) {
    problem = "the domain has rules for HTTP requests and this is PostgreSQL";
    hint = "allow \"" + *name + "\" without rules";
  }
  if (!problem.empty()) {
    return {.kind = Kind::kRefuse, .name = *std::move(name), .verdict = Denied(std::move(problem), std::move(hint))};
  }
  return {.kind = ruled ? Kind::kIntercept : Kind::kDialName, .name = *std::move(name), .verdict = std::move(verdict)};
}

// Neither a name nor an address lets it through, but a name may have led to addresses that subnets.allow opens.
Decision DecideOther(const CompiledPolicy& policy, const Approach& approach) {
  if (!approach.hint.empty() && !policy.policy().allow_cidrs.empty()) {
    Verdict verdict = JudgeName(policy, approach.hint);
    if (verdict.allowed) return {.kind = Kind::kDialOpened, .name = approach.hint, .verdict = std::move(verdict)};
  }
  const std::string& problem = approach.opening->problem;
  std::string reason = "domains are matched on TLS and HTTP only, and this is neither";
  if (!problem.empty()) reason += " (" + problem + ")";
  std::string hint = approach.hint.empty() ? AllowAddressHint(approach.target.address)
                                           : "allow the addresses of \"" + approach.hint + "\" with subnets.allow";
  return {.kind = Kind::kRefuse, .name = approach.hint, .verdict = Denied(std::move(reason), std::move(hint))};
}

Decision DecideOpening(const CompiledPolicy& policy, const Approach& approach, const EgressConfig& config) {
  const Opening& opening = *approach.opening;
  if (!opening.done) return {.kind = Kind::kRead, .name = {}, .verdict = {}};
  if (!opening.problem.empty()) return DecideOther(policy, approach);
  switch (opening.speech) {
    case Speech::kTls:
      return DecideTls(policy, approach, config);
    case Speech::kHttp:
      return {.kind = Kind::kIntercept, .name = {}, .verdict = {.allowed = true, .rule = "", .reason = "", .hint = ""}};
    case Speech::kHttp2:
      return Refused(Denied("HTTP/2 without TLS cannot be read", "use HTTP/1.1 or https"));
    default:
      return DecideOther(policy, approach);
  }
}

// Whether it makes no difference which of two policies a connection goes by.
bool SameTreatment(const CompiledPolicy& a, const Decision& x, const CompiledPolicy& b, const Decision& y) {
  static const std::vector<Rule> kNone;
  auto rules = [](const Decision& d) -> const auto& {
    return d.verdict.entry == nullptr ? kNone : d.verdict.entry->rules;
  };
  if (x.kind != y.kind || x.name != y.name) return false;
  if (x.kind == Kind::kDialAddress) return true;
  const bool named = x.kind == Kind::kDialName || (x.kind == Kind::kIntercept && !x.name.empty());
  // What a name resolves to is judged later, by one of the two.
  return named && a.policy().deny_cidrs == b.policy().deny_cidrs && rules(x) == rules(y);
}

}  // namespace

Verdict JudgeName(const CompiledPolicy& policy, const std::string& name) {
  if (policy.mode() != EgressMode::kCustom) return ByMode(policy.mode(), R"({"allow":[")" + name + R"("]})");
  const DomainEntry* entry = policy.FindName(name);
  if (entry == nullptr) return Denied("no domain of the network policy fits", "add \"" + name + "\" to allow");
  return {.allowed = true, .rule = "allow \"" + entry->pattern + "\"", .reason = "", .hint = "", .entry = entry};
}

Verdict JudgeAddress(const CompiledPolicy& policy, const IpAddress& address) {
  if (policy.mode() != EgressMode::kCustom) {
    return ByMode(policy.mode(), R"({"subnets":{"allow":[")" + JustThis(address) + R"("]}})");
  }
  switch (policy.JudgeAddress(address)) {
    case AddressVerdict::kAllowed:
      return {.allowed = true, .rule = "subnets.allow " + *policy.FindCidr(address), .reason = "", .hint = ""};
    case AddressVerdict::kDenied: {
      const std::string& cidr = *policy.FindCidr(address);
      return {.allowed = false,
              .rule = "subnets.deny " + cidr,
              .reason = "the network policy denies " + cidr,
              .hint = "take \"" + cidr + "\" out of subnets.deny"};
    }
    case AddressVerdict::kNoRule:
      break;
  }
  return Denied("no subnet of the network policy contains the address", AllowAddressHint(address));
}

Decision Decide(const CompiledPolicy& policy, const Approach& approach, const EgressConfig& config) {
  bool named = !approach.hint.empty();
  Verdict general = named ? JudgeName(policy, approach.hint) : JudgeAddress(policy, approach.target.address);
  if (policy.mode() == EgressMode::kDenyAll) return Refused(std::move(general));
  if (policy.mode() == EgressMode::kAllowAll) {
    return {.kind = named ? Kind::kDialName : Kind::kDialAddress, .name = approach.hint, .verdict = std::move(general)};
  }
  if (!named) {
    AddressVerdict by_address = policy.JudgeAddress(approach.target.address);
    if (by_address == AddressVerdict::kDenied) return Refused(std::move(general));
    if (by_address == AddressVerdict::kAllowed) {
      return {.kind = Kind::kDialAddress, .name = {}, .verdict = std::move(general)};
    }
  }
  return DecideOpening(policy, approach, config);
}

Decision DecideAll(const CompiledPolicy& policy, const std::vector<PolicyRef>& also, const Approach& approach,
                   const EgressConfig& config) {
  Decision decision = Decide(policy, approach, config);
  if (decision.kind == Kind::kRefuse) return decision;
  bool read = decision.kind == Kind::kRead;
  bool same = true;
  for (const PolicyRef& other : also) {
    Decision theirs = Decide(*other, approach, config);
    if (theirs.kind == Kind::kRefuse) return theirs;
    read = read || theirs.kind == Kind::kRead;
    same = same && SameTreatment(policy, decision, *other, theirs);
  }
  if (read) return {.kind = Kind::kRead, .name = {}, .verdict = {}};
  if (!same) return {.kind = Kind::kWait, .name = std::move(decision.name), .verdict = {}};
  return decision;
}

}  // namespace sandbar::egress
