#include "egress/decide.h"

namespace sandbar::egress {

namespace {

using Kind = ConnectionPlan::Kind;

// `smallest`: the policy that would let it through.
Decision ByMode(EgressMode mode, const std::string& smallest) {
  if (mode == EgressMode::kAllowAll) return {.allowed = true, .rule = "allow-all", .reason = "", .hint = ""};
  return {.allowed = false,
          .rule = "deny-all",
          .reason = "the sandbox's network policy is deny-all",
          .hint = "set the sandbox's networkPolicy to " + smallest + " or \"allow-all\""};
}

Decision Denied(std::string reason, std::string hint) {
  return {.allowed = false, .rule = "no rule allows it", .reason = std::move(reason), .hint = std::move(hint)};
}

ConnectionPlan Refused(Decision decision) {
  return {.kind = Kind::kDeny, .name = {}, .decision = std::move(decision)};
}

// "192.0.2.1/32"
std::string JustThis(const IpAddress& address) {
  return ToString(address) + (address.is_v4() ? "/32" : "/128");
}

std::string AllowAddressHint(const IpAddress& address) {
  return "add \"" + JustThis(address) + "\" to subnets.allow";
}

ConnectionPlan PlanTls(const CompiledPolicy& policy, const Approach& approach, const EgressConfig& config) {
  const wire::ClientHello& hello = *approach.first_bytes->hello;
  if (!hello.server_name) {
    return Refused(Denied("TLS without a server name (SNI) cannot be matched to a domain",
                          "connect by name, or allow the address with subnets.allow"));
  }
  auto name = CanonicalName(*hello.server_name);
  if (!name) return Refused(Denied("TLS with a server name that is none: " + name.error().message, "connect by name"));
  Decision decision = DecideName(policy, *name);
  if (!decision.allowed) return {.kind = Kind::kDeny, .name = *std::move(name), .decision = std::move(decision)};
  bool ruled = !decision.entry->rules.empty();
  std::string problem, hint;
  if (hello.ech && !ruled && !config.allow_ech) {
    problem = "Encrypted Client Hello (or a decoy of it) hides which server is meant";
    hint = "turn ECH off in the client; the server's operator can set network.allow_ech";
  } else if (ruled && approach.first_bytes->postgres) {
    problem = "the domain has rules for HTTP requests and this is PostgreSQL";
    hint = "allow \"" + *name + "\" without rules";
  }
  if (!problem.empty()) {
    return {.kind = Kind::kDeny, .name = *std::move(name), .decision = Denied(std::move(problem), std::move(hint))};
  }
  return {
      .kind = ruled ? Kind::kIntercept : Kind::kDialName, .name = *std::move(name), .decision = std::move(decision)};
}

// Neither a name nor an address lets it through, but a name may have led to addresses that subnets.allow opens.
ConnectionPlan PlanOther(const CompiledPolicy& policy, const Approach& approach) {
  if (!approach.name.empty() && !policy.policy().allow_cidrs.empty()) {
    Decision decision = DecideName(policy, approach.name);
    if (decision.allowed) return {.kind = Kind::kDialOpened, .name = approach.name, .decision = std::move(decision)};
  }
  const std::string& problem = approach.first_bytes->problem;
  std::string reason = "domains are matched on TLS and HTTP only, and this is neither";
  if (!problem.empty()) reason += " (" + problem + ")";
  std::string hint = approach.name.empty() ? AllowAddressHint(approach.target.address)
                                           : "allow the addresses of \"" + approach.name + "\" with subnets.allow";
  return {.kind = Kind::kDeny, .name = approach.name, .decision = Denied(std::move(reason), std::move(hint))};
}

ConnectionPlan PlanByFirstBytes(const CompiledPolicy& policy, const Approach& approach, const EgressConfig& config) {
  const FirstBytes& first_bytes = *approach.first_bytes;
  if (!first_bytes.done) return {.kind = Kind::kRead, .name = {}, .decision = {}};
  if (!first_bytes.problem.empty()) return PlanOther(policy, approach);
  switch (first_bytes.protocol) {
    case AppProtocol::kTls:
      return PlanTls(policy, approach, config);
    case AppProtocol::kHttp:
      return {
          .kind = Kind::kIntercept, .name = {}, .decision = {.allowed = true, .rule = "", .reason = "", .hint = ""}};
    case AppProtocol::kHttp2:
      return Refused(Denied("HTTP/2 without TLS cannot be read", "use HTTP/1.1 or https"));
    default:
      return PlanOther(policy, approach);
  }
}

// Whether it makes no difference which of two policies a connection goes by.
bool SameTreatment(const CompiledPolicy& a, const ConnectionPlan& x, const CompiledPolicy& b, const ConnectionPlan& y) {
  static const std::vector<Rule> kNone;
  auto rules = [](const ConnectionPlan& d) -> const auto& {
    return d.decision.entry == nullptr ? kNone : d.decision.entry->rules;
  };
  if (x.kind != y.kind || x.name != y.name) return false;
  if (x.kind == Kind::kDialAddress) return true;
  const bool named = x.kind == Kind::kDialName || (x.kind == Kind::kIntercept && !x.name.empty());
  // What a name resolves to is decided later, by one of the two.
  return named && a.policy().deny_cidrs == b.policy().deny_cidrs && rules(x) == rules(y);
}

}  // namespace

Decision DecideName(const CompiledPolicy& policy, const std::string& name) {
  if (policy.mode() != EgressMode::kCustom) return ByMode(policy.mode(), R"({"allow":[")" + name + R"("]})");
  const DomainEntry* entry = policy.FindName(name);
  if (entry == nullptr) return Denied("no domain of the network policy fits", "add \"" + name + "\" to allow");
  return {.allowed = true, .rule = "allow \"" + entry->pattern + "\"", .reason = "", .hint = "", .entry = entry};
}

Decision DecideAddress(const CompiledPolicy& policy, const IpAddress& address) {
  if (policy.mode() != EgressMode::kCustom) {
    return ByMode(policy.mode(), R"({"subnets":{"allow":[")" + JustThis(address) + R"("]}})");
  }
  switch (policy.DecideAddress(address)) {
    case AddressDecision::kAllowed:
      return {.allowed = true, .rule = "subnets.allow " + *policy.FindCidr(address), .reason = "", .hint = ""};
    case AddressDecision::kDenied: {
      const std::string& cidr = *policy.FindCidr(address);
      return {.allowed = false,
              .rule = "subnets.deny " + cidr,
              .reason = "the network policy denies " + cidr,
              .hint = "take \"" + cidr + "\" out of subnets.deny"};
    }
    case AddressDecision::kNoRule:
      break;
  }
  return Denied("no subnet of the network policy contains the address", AllowAddressHint(address));
}

ConnectionPlan PlanConnection(const CompiledPolicy& policy, const Approach& approach, const EgressConfig& config) {
  bool named = !approach.name.empty();
  Decision general = named ? DecideName(policy, approach.name) : DecideAddress(policy, approach.target.address);
  if (policy.mode() == EgressMode::kDenyAll) return Refused(std::move(general));
  if (policy.mode() == EgressMode::kAllowAll) {
    return {
        .kind = named ? Kind::kDialName : Kind::kDialAddress, .name = approach.name, .decision = std::move(general)};
  }
  if (!named) {
    AddressDecision by_address = policy.DecideAddress(approach.target.address);
    if (by_address == AddressDecision::kDenied) return Refused(std::move(general));
    if (by_address == AddressDecision::kAllowed) {
      return {.kind = Kind::kDialAddress, .name = {}, .decision = std::move(general)};
    }
  }
  return PlanByFirstBytes(policy, approach, config);
}

ConnectionPlan PlanUnderAll(const CompiledPolicy& policy, const std::vector<PolicyRef>& also, const Approach& approach,
                            const EgressConfig& config) {
  ConnectionPlan plan = PlanConnection(policy, approach, config);
  if (plan.kind == Kind::kDeny) return plan;
  bool read = plan.kind == Kind::kRead;
  bool same = true;
  for (const PolicyRef& other : also) {
    ConnectionPlan theirs = PlanConnection(*other, approach, config);
    if (theirs.kind == Kind::kDeny) return theirs;
    read = read || theirs.kind == Kind::kRead;
    same = same && SameTreatment(policy, plan, *other, theirs);
  }
  if (read) return {.kind = Kind::kRead, .name = {}, .decision = {}};
  if (!same) return {.kind = Kind::kWait, .name = std::move(plan.name), .decision = {}};
  return plan;
}

}  // namespace sandbar::egress
