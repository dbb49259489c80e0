// A sandbox's network policy: what it may reach, and what happens to requests on the way. Values, no I/O; any thread.
//
// NetworkPolicy is what a caller asked for, canonical and checked. CompiledPolicy is the same, ready to judge (regular
// expressions compiled); it is shared, immutable, and replaced as a whole when the policy changes.
//
//   SB_TRY(PolicyRef policy, Compile(wanted));            // kBadRequest names the field
//   SB_TRY(std::string name, CanonicalName(sni));         // one form is judged, resolved and dialled
//   if (const DomainEntry* e = policy->FindName(name)) …  // allowed; e->rules say what to do with its requests
//
// A deny CIDR beats everything. An allow CIDR opens addresses whatever name led there. Rules are handling, not access:
// the first rule that matches a request acts, an unmatched request passes (unless the operator's strict switch is on).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"
#include "net/address.h"

namespace re2 {
class RE2;
}

namespace sandbar::net {

enum class EgressMode { kDenyAll, kAllowAll, kCustom };
std::string_view ModeName(EgressMode mode);  // "deny-all", …

struct Matcher {
  enum class Kind { kExact, kStartsWith, kRegex };
  Kind kind = Kind::kExact;
  std::string text;
  bool operator==(const Matcher&) const = default;
};
struct PairMatch {  // of a query parameter or a header; an absent part matches anything
  std::optional<Matcher> key, value;
  bool operator==(const PairMatch&) const = default;
};
// All given dimensions must match; methods are alternatives; every PairMatch needs one pair that fits.
struct RequestMatch {
  std::optional<Matcher> path;
  std::vector<std::string> methods;
  std::vector<PairMatch> query, headers;
  bool operator==(const RequestMatch&) const = default;
};

using NameValue = std::pair<std::string, std::string>;
struct TransformAction {
  std::vector<NameValue> headers;  // set on the request, replacing the guest's own; values are secrets
  bool operator==(const TransformAction&) const = default;
};
struct ForwardAction {
  std::string url;  // http(s), no userinfo
  bool operator==(const ForwardAction&) const = default;
};
struct RespondAction {
  int status = 200;
  std::vector<NameValue> headers;
  std::string body, content_type;
  bool operator==(const RespondAction&) const = default;
};
struct Rule {
  std::optional<RequestMatch> match;  // absent: every request
  std::variant<TransformAction, ForwardAction, RespondAction> action;
  bool operator==(const Rule&) const = default;
};
struct DomainEntry {
  std::string pattern;  // canonical: "x.com", "*.x.com", "a.*.com", "*"
  std::vector<Rule> rules;
  bool operator==(const DomainEntry&) const = default;
};

struct NetworkPolicy {
  EgressMode mode = EgressMode::kDenyAll;
  // Only for kCustom. The first entry whose pattern fits is the one that acts.
  std::vector<DomainEntry> domains;
  std::vector<std::string> allow_cidrs, deny_cidrs;
  bool operator==(const NetworkPolicy&) const = default;
};

// Lower case, no trailing dot, IDN as its A-label. kBadRequest for what is no host name: empty or long labels, bytes
// other than letters, digits, '-', '_'; NUL; an address in any spelling (decimal, hex, octal ones included).
Result<std::string> CanonicalName(std::string_view name);
// The same for a policy's pattern, where "*" may stand for a whole label.
Result<std::string> CanonicalPattern(std::string_view pattern);
// `name` and `pattern` canonical. "*" fits all, "*.x" any depth below x but not x, an inner "*" exactly one label.
bool PatternFits(std::string_view pattern, std::string_view name);

// What a rule looks at. `path` without the query, decoded and normalised once; header names any case.
struct RequestView {
  std::string_view method, path;
  const std::vector<NameValue>* query = nullptr;
  const std::vector<NameValue>* headers = nullptr;
};

enum class AddressVerdict { kNoRule, kAllowed, kDenied };

class CompiledPolicy {
 public:
  CompiledPolicy(const CompiledPolicy&) = delete;
  CompiledPolicy& operator=(const CompiledPolicy&) = delete;
  ~CompiledPolicy();

  EgressMode mode() const { return policy_.mode; }
  const NetworkPolicy& policy() const { return policy_; }
  // The entry that lets a canonical name through; null: none does. Only meaningful for kCustom.
  const DomainEntry* FindName(std::string_view name) const;
  // By CIDR alone; kDenied wins. In allow-all and deny-all there are no CIDRs and it is kNoRule.
  AddressVerdict JudgeAddress(const IpAddress& address) const;
  // The first rule of the entry (one that FindName gave) that matches, null when none does.
  const Rule* FindRule(const DomainEntry& entry, const RequestView& request) const;
  bool HasRules() const;  // any domain with rules: TLS will be ended for it

 private:
  friend Result<std::shared_ptr<const CompiledPolicy>> Compile(NetworkPolicy policy);
  struct CompiledRule;
  explicit CompiledPolicy(NetworkPolicy policy);
  Result<> Prepare();

  NetworkPolicy policy_;
  std::vector<Cidr> allow_, deny_;
  std::vector<std::vector<CompiledRule>> rules_;  // [domain][rule]
};
using PolicyRef = std::shared_ptr<const CompiledPolicy>;

// kBadRequest with the field's name: bad patterns, CIDRs, regular expressions, header names or values, URLs, statuses,
// or more than the bounds (1000 domains, 1000 CIDRs, 256 rules, 64 KiB of regular expressions, 64 KiB a body).
Result<PolicyRef> Compile(NetworkPolicy policy);
PolicyRef DenyAll();
PolicyRef AllowAll();

}  // namespace sandbar::net
