// A sandbox's network policy: what it may reach, and what happens to requests on the way. Values, no I/O; any thread.
//
// NetworkPolicy is what a caller asked for, canonical and checked. CompiledPolicy is the same, ready to decide (regular
// expressions compiled); it is shared, immutable, and replaced as a whole when the policy changes.
//
//   SB_TRY(PolicyRef policy, Compile(wanted));            // kBadRequest names the field
//   SB_TRY(std::string name, CanonicalName(sni));         // one form is decided on, resolved and dialled
//   if (const DomainEntry* e = policy->FindName(name)) …  // allowed; e->rules say what to do with its requests
//
// A deny CIDR beats everything. An allow CIDR opens addresses whatever name led there. Rules are handling, not access:
// the first rule that matches a request acts, an unmatched request passes (unless the operator's strict switch is on).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"
#include "egress/address.h"
#include "egress/bounded_pattern.h"

namespace sandbar::egress {

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

enum class AddressDecision { kNoRule, kAllowed, kDenied };

class CompiledRules;  // policy_rules.h

// Finds the first of many patterns that fits a name, in a time that hardly depends on how many there are.
class DomainIndex {
 public:
  // `pattern` is canonical and outlives the index; the smaller number is the earlier one.
  void Add(std::string_view pattern, size_t number);
  std::optional<size_t> Find(std::string_view name) const;

 private:
  std::unordered_map<std::string_view, size_t> exact_;
  std::unordered_map<std::string_view, size_t> below_;       // "*.x" by "x"
  std::vector<std::pair<std::string_view, size_t>> others_;  // "*" inside, in their order
  std::optional<size_t> any_;                                // "*"
};

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
  AddressDecision DecideAddress(const IpAddress& address) const;
  // The text of the CIDR that decides about the address: the first of deny_cidrs, else of allow_cidrs; null: none.
  const std::string* FindCidr(const IpAddress& address) const;
  // The first rule of the entry (one that FindName gave) that matches, null when none does. kTooLarge: the budget does
  // not suffice to tell; such a request must be refused.
  Result<const Rule*> FindRule(const DomainEntry& entry, const RequestView& request, StepBudget& budget) const;
  // Whether a rule of the entry has a condition on the path.
  bool HasPathRules(const DomainEntry& entry) const;
  bool HasRules() const;  // any domain with rules: TLS will be ended for it

 private:
  friend Result<std::shared_ptr<const CompiledPolicy>> Compile(NetworkPolicy policy);
  explicit CompiledPolicy(NetworkPolicy policy);
  Result<> Prepare();
  const CompiledRules& RulesOf(const DomainEntry& entry) const;

  NetworkPolicy policy_;
  std::vector<Cidr> allow_, deny_;
  DomainIndex index_;
  std::vector<CompiledRules> rules_;  // one for each domain
};
using PolicyRef = std::shared_ptr<const CompiledPolicy>;

// kBadRequest with the field's name: bad patterns, CIDRs, regular expressions, header names or values, URLs, statuses,
// or more than the bounds (1000 domains, 1000 CIDRs, 256 rules, 1000 matchers, 1 MiB of texts in rules; see
// BoundedPattern and policy_rules.cc).
Result<PolicyRef> Compile(NetworkPolicy policy);
PolicyRef DenyAll();
PolicyRef AllowAll();

}  // namespace sandbar::egress
