#include "egress/policy.h"

#include <fmt/format.h>
#include <idn2.h>

#include <algorithm>

#include "egress/policy_rules.h"
#include "wire/text.h"

namespace sandbar::egress {

namespace {

constexpr size_t kMaxName = 253;
constexpr size_t kMaxLabel = 63;
constexpr size_t kMaxDomains = 1000;
constexpr size_t kMaxCidrs = 1000;

bool IsNameByte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

// What inet_aton and URL parsers read as a number: digits, or 0x and hex digits.
bool IsNumeric(std::string_view label) {
  if (label.starts_with("0x")) {
    return std::ranges::all_of(label.substr(2),
                               [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
  }
  return std::ranges::all_of(label, [](char c) { return c >= '0' && c <= '9'; });
}

std::vector<std::string_view> Labels(std::string_view name) {
  std::vector<std::string_view> out;
  for (;;) {
    size_t dot = name.find('.');
    out.push_back(name.substr(0, dot));
    if (dot == std::string_view::npos) return out;
    name.remove_prefix(dot + 1);
  }
}

std::string_view LastLabel(std::string_view name) {
  size_t dot = name.rfind('.');
  return dot == std::string_view::npos ? name : name.substr(dot + 1);
}

Result<std::string> ToAscii(std::string_view name) {
  bool ascii = std::ranges::all_of(name, [](char c) { return static_cast<unsigned char>(c) < 0x80; });
  if (ascii) return wire::LowerCase(name);
  std::string text(name);
  if (text.contains('\0')) return Fail(Code::kBadRequest, "a host name cannot contain NUL");
  char* raw = nullptr;
  int rc = idn2_to_ascii_8z(text.c_str(), &raw, IDN2_NFC_INPUT | IDN2_NONTRANSITIONAL);
  std::unique_ptr<char, void (*)(void*)> owned(raw, idn2_free);
  if (rc != IDN2_OK)
    return Fail(Code::kBadRequest, std::string("not an international host name: ") + idn2_strerror(rc));
  return wire::LowerCase(owned.get());
}

Result<std::string> Canonical(std::string_view given, bool pattern) {
  if (given.ends_with('.')) given.remove_suffix(1);
  if (given.size() > 4 * kMaxName) return Fail(Code::kBadRequest, "a host name has at most 253 characters");
  SB_TRY(std::string name, ToAscii(given));
  if (name.empty() || name.size() > kMaxName) return Fail(Code::kBadRequest, "a host name has 1 to 253 characters");
  auto labels = Labels(name);
  for (std::string_view label : labels) {
    if (pattern && label == "*") continue;
    if (label.empty() || label.size() > kMaxLabel) {
      return Fail(Code::kBadRequest, "a label of a host name has 1 to 63 characters");
    }
    if (!std::ranges::all_of(label, IsNameByte)) {
      return Fail(Code::kBadRequest, label.contains('*') ? "\"*\" must be a whole label of a domain"
                                                         : "a host name has letters, digits, \"-\" and \"_\" only");
    }
  }
  // The last label decides: no top-level domain is a number, and every address spelling ends in one.
  if (IsNumeric(labels.back())) return Fail(Code::kBadRequest, "an address is not a host name; use subnets for it");
  return name;
}

}  // namespace

std::string_view ModeName(EgressMode mode) {
  switch (mode) {
    case EgressMode::kDenyAll:
      return "deny-all";
    case EgressMode::kAllowAll:
      return "allow-all";
    case EgressMode::kCustom:
      return "custom";
  }
  return "deny-all";
}

Result<std::string> CanonicalName(std::string_view name) {
  return Canonical(name, false);
}

Result<std::string> CanonicalPattern(std::string_view pattern) {
  return Canonical(pattern, true);
}

bool PatternFits(std::string_view pattern, std::string_view name) {
  if (pattern == "*" || pattern == name) return true;
  if (!pattern.contains('*')) return false;
  const bool any_depth = pattern.starts_with("*.");
  // From the last label to the first.
  for (;;) {
    const std::string_view want = LastLabel(pattern);
    const std::string_view have = LastLabel(name);
    if (want != "*" && want != have) return false;
    const bool no_more_names = have.size() == name.size();
    if (want.size() == pattern.size()) return no_more_names || any_depth;
    if (no_more_names) return false;
    pattern.remove_suffix(want.size() + 1);
    name.remove_suffix(have.size() + 1);
  }
}

void DomainIndex::Add(std::string_view pattern, size_t number) {
  if (pattern == "*") {
    any_ = std::min(any_.value_or(number), number);
  } else if (!pattern.contains('*')) {
    exact_.try_emplace(pattern, number);
  } else if (pattern.starts_with("*.") && !pattern.substr(1).contains('*')) {
    below_.try_emplace(pattern.substr(2), number);
  } else {
    others_.emplace_back(pattern, number);
  }
}

std::optional<size_t> DomainIndex::Find(std::string_view name) const {
  std::optional<size_t> first = any_;
  auto consider = [&first](size_t number) { first = std::min(first.value_or(number), number); };
  if (auto it = exact_.find(name); it != exact_.end()) consider(it->second);
  for (size_t dot = name.find('.'); !below_.empty() && dot != std::string_view::npos; dot = name.find('.', dot + 1))
    if (auto it = below_.find(name.substr(dot + 1)); it != below_.end()) consider(it->second);
  auto fits = [&](const auto& other) { return PatternFits(other.first, name); };
  if (auto it = std::ranges::find_if(others_, fits); it != others_.end()) consider(it->second);
  return first;
}

CompiledPolicy::CompiledPolicy(NetworkPolicy policy) : policy_(std::move(policy)) {}
CompiledPolicy::~CompiledPolicy() = default;

namespace {

std::unexpected<Error> Bad(const std::string& field, const std::string& why) {
  return Fail(Code::kBadRequest, "networkPolicy." + field + ": " + why);
}

Result<std::vector<Cidr>> ParseCidrs(const std::vector<std::string>& texts, const std::string& field) {
  if (texts.size() > kMaxCidrs) return Bad(field, "at most 1000");
  std::vector<Cidr> out;
  for (const std::string& text : texts) {
    auto cidr = ParseCidr(text);
    if (!cidr) return Bad(field, "\"" + text + "\": " + cidr.error().message);
    out.push_back(*cidr);
  }
  return out;
}

}  // namespace

Result<> CompiledPolicy::Prepare() {
  bool custom = policy_.mode == EgressMode::kCustom;
  bool any = !policy_.domains.empty() || !policy_.allow_cidrs.empty() || !policy_.deny_cidrs.empty();
  if (!custom && any) return Bad("mode", "allow-all and deny-all take no rules");
  SB_TRY(allow_, ParseCidrs(policy_.allow_cidrs, "subnets.allow"));
  SB_TRY(deny_, ParseCidrs(policy_.deny_cidrs, "subnets.deny"));
  if (policy_.domains.size() > kMaxDomains) return Bad("allow", "at most 1000 domains");
  RuleTotals totals;
  for (DomainEntry& entry : policy_.domains) {
    auto pattern = CanonicalPattern(entry.pattern);
    if (!pattern) return Bad("allow", "\"" + entry.pattern + "\": " + pattern.error().message);
    entry.pattern = *std::move(pattern);
    SB_TRY(CompiledRules rules, CompiledRules::Compile(entry, totals));
    index_.Add(entry.pattern, rules_.size());
    rules_.push_back(std::move(rules));
  }
  return {};
}

const DomainEntry* CompiledPolicy::FindName(std::string_view name) const {
  auto number = index_.Find(name);
  return number ? &policy_.domains[*number] : nullptr;
}

AddressDecision CompiledPolicy::DecideAddress(const IpAddress& address) const {
  auto contains = [&](const Cidr& c) { return c.Contains(address); };
  if (std::ranges::any_of(deny_, contains)) return AddressDecision::kDenied;
  if (std::ranges::any_of(allow_, contains)) return AddressDecision::kAllowed;
  return AddressDecision::kNoRule;
}

const std::string* CompiledPolicy::FindCidr(const IpAddress& address) const {
  auto contains = [&](const Cidr& c) { return c.Contains(address); };
  if (auto it = std::ranges::find_if(deny_, contains); it != deny_.end())
    return &policy_.deny_cidrs[static_cast<size_t>(it - deny_.begin())];
  if (auto it = std::ranges::find_if(allow_, contains); it != allow_.end())
    return &policy_.allow_cidrs[static_cast<size_t>(it - allow_.begin())];
  return nullptr;
}

const CompiledRules& CompiledPolicy::RulesOf(const DomainEntry& entry) const {
  auto number = static_cast<size_t>(&entry - policy_.domains.data());
  SB_CHECK(number < rules_.size());
  return rules_[number];
}

Result<const Rule*> CompiledPolicy::FindRule(const DomainEntry& entry, const RequestView& request,
                                             StepBudget& budget) const {
  return RulesOf(entry).Find(request, budget);
}

bool CompiledPolicy::HasPathRules(const DomainEntry& entry) const {
  return RulesOf(entry).has_path_rules();
}

bool CompiledPolicy::HasRules() const {
  return std::ranges::any_of(policy_.domains, [](const DomainEntry& e) { return !e.rules.empty(); });
}

Result<PolicyRef> Compile(NetworkPolicy policy) {
  std::shared_ptr<CompiledPolicy> compiled(new CompiledPolicy(std::move(policy)));
  SB_TRYV(compiled->Prepare());
  return compiled;
}

PolicyRef DenyAll() {
  return *Compile({.mode = EgressMode::kDenyAll});
}

PolicyRef AllowAll() {
  return *Compile({.mode = EgressMode::kAllowAll});
}

}  // namespace sandbar::egress
