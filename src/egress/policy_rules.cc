#include "egress/policy_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "wire/text.h"
#include "wire/url.h"

namespace sandbar::egress {

namespace {

constexpr size_t kMaxRules = 256;
constexpr size_t kMaxMatchers = 1000;
constexpr size_t kMaxMethods = 32;  // of one rule
constexpr size_t kMaxHeaders = 64;  // that one rule sets
constexpr size_t kMaxRuleBytes = 1 << 20;
constexpr size_t kMaxShownBytes = 128 << 10;
constexpr size_t kMaxPolicyEffort = 20'000;
constexpr size_t kMaxPolicyProgram = 20'000;
constexpr size_t kMaxBody = 64 << 10;
constexpr size_t kMaxHeaderValue = 16 << 10;
constexpr std::array<std::string_view, 8> kFramingHeaders = {
    "connection", "content-length", "transfer-encoding", "host", "upgrade", "te", "trailer", "keep-alive"};

bool IsTokenByte(char c) {
  constexpr std::string_view kOther = "!#$%&'*+-.^_`|~";
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || kOther.contains(c);
}

std::unexpected<Error> Bad(const std::string& field, const std::string& why) {
  return Fail(Code::kBadRequest, "networkPolicy." + field + ": " + why);
}

Result<> Count(size_t bytes, RuleTotals& totals, const std::string& field) {
  totals.bytes += bytes;
  if (totals.bytes <= kMaxRuleBytes) return {};
  return Bad(field, "the policy's rules are longer than 1 MiB together");
}

Result<> CountShown(size_t bytes, RuleTotals& totals, const std::string& field) {
  totals.shown += bytes;
  if (totals.shown <= kMaxShownBytes) return Count(bytes, totals, field);
  return Bad(field, "the policy's matchers, methods, header names and URLs are longer than 128 KiB together");
}

Result<> CheckHeaders(const std::vector<NameValue>& headers, const std::string& field, RuleTotals& totals) {
  if (headers.size() > kMaxHeaders) return Bad(field, fmt::format("at most {} headers", kMaxHeaders));
  for (const auto& [name, value] : headers) {
    if (name.empty() || name.size() > 256 || !std::ranges::all_of(name, IsTokenByte)) {
      return Bad(field, "\"" + name + "\" is not a header name");
    }
    if (std::ranges::find(kFramingHeaders, wire::LowerCase(name)) != kFramingHeaders.end()) {
      return Bad(field, "\"" + name + "\" belongs to the connection and cannot be set");
    }
    bool clean = std::ranges::none_of(value, [](char c) { return (c >= 0 && c < 0x20 && c != '\t') || c == 0x7f; });
    // The value itself is a secret: it is not repeated.
    if (!clean || value.size() > kMaxHeaderValue) return Bad(field + "." + name, "is not a header value");
    SB_TRYV(CountShown(name.size(), totals, field));
    SB_TRYV(Count(value.size(), totals, field));
  }
  return {};
}

Result<> CheckAction(const TransformAction& action, const std::string& field, RuleTotals& totals) {
  return CheckHeaders(action.headers, field + ".transform.headers", totals);
}

Result<> CheckAction(const ForwardAction& action, const std::string& field, RuleTotals& totals) {
  auto url = wire::ParseUrl(action.url);
  bool web = url && (url->scheme == "https" || url->scheme == "http");
  if (!web) return Bad(field + ".forwardURL", "must be an http or https URL without user name and password");
  return CountShown(action.url.size(), totals, field + ".forwardURL");
}

Result<> CheckAction(const RespondAction& action, const std::string& field, RuleTotals& totals) {
  const std::string at = field + ".response";
  if (action.status < 200 || action.status > 599) return Bad(at + ".statusCode", "must be 200 to 599");
  bool bodiless = action.status == 204 || action.status == 205 || action.status == 304;
  if (bodiless && !action.body.empty()) return Bad(at + ".body", fmt::format("a {} has no body", action.status));
  if (!action.body.empty() && action.content_type.empty()) return Bad(at + ".contentType", "is required with a body");
  if (action.body.size() > kMaxBody) return Bad(at + ".body", "at most 64 KiB");
  SB_TRYV(Count(action.body.size(), totals, at + ".body"));
  const std::vector<NameValue> type{{"content-type", action.content_type}};
  SB_TRYV(CheckHeaders(type, at, totals));
  return CheckHeaders(action.headers, at + ".headers", totals);
}

bool StartsIgnoringCase(std::string_view text, std::string_view start) {
  return text.size() >= start.size() && wire::EqualsIgnoreCase(text.substr(0, start.size()), start);
}

}  // namespace

Result<CompiledMatcher> CompiledMatcher::Compile(const std::optional<Matcher>& matcher, const std::string& field,
                                                 bool fold, RuleTotals& totals) {
  CompiledMatcher out;
  if (!matcher) return out;
  if (++totals.matchers > kMaxMatchers)
    return Bad(field, fmt::format("the policy has more than {} matchers", kMaxMatchers));
  SB_TRYV(CountShown(matcher->text.size(), totals, field));
  out.kind_ = matcher->kind;
  out.fold_ = fold;
  if (matcher->kind != Matcher::Kind::kRegex) {
    out.text_ = matcher->text;
    return out;
  }
  constexpr std::string_view kTogether =
      "the policy's regular expressions are too large together: use fewer or simpler ones, or `exact` and `startsWith`";
  totals.effort += BoundedPattern::Effort(matcher->text);
  auto pattern = BoundedPattern::Compile(matcher->text, fold);
  if (!pattern) return Bad(field, pattern.error().message);
  totals.program += pattern->program();
  if (totals.effort > kMaxPolicyEffort || totals.program > kMaxPolicyProgram) return Bad(field, std::string(kTogether));
  out.pattern_ = *std::move(pattern);
  return out;
}

bool CompiledMatcher::Fits(std::string_view text, StepBudget& budget) const {
  if (!kind_) return true;
  if (pattern_) return budget.Take(pattern_->Cost(text.size())) && pattern_->Finds(text);
  // A comparison ends at the first difference or the end of the shorter text.
  if (!budget.Take(1 + std::min(text_.size(), text.size()) / 64)) return false;
  if (*kind_ == Matcher::Kind::kExact) return fold_ ? wire::EqualsIgnoreCase(text, text_) : text == text_;
  return fold_ ? StartsIgnoringCase(text, text_) : text.starts_with(text_);
}

Result<std::vector<CompiledRules::Pair>> CompiledRules::CompilePairs(const std::vector<PairMatch>& pairs,
                                                                     const std::string& field, bool fold_keys,
                                                                     RuleTotals& totals) {
  if (pairs.size() > kMaxMatchers) return Bad(field, fmt::format("at most {}", kMaxMatchers));
  std::vector<Pair> out;
  for (const PairMatch& pair : pairs) {
    // One without a key and a value costs time as well.
    if (!pair.key && !pair.value && ++totals.matchers > kMaxMatchers)
      return Bad(field, fmt::format("the policy has more than {} matchers", kMaxMatchers));
    Pair compiled;
    SB_TRY(compiled.key, CompiledMatcher::Compile(pair.key, field + ".key", fold_keys, totals));
    SB_TRY(compiled.value, CompiledMatcher::Compile(pair.value, field + ".value", false, totals));
    out.push_back(std::move(compiled));
  }
  return out;
}

Result<CompiledRules> CompiledRules::Compile(const DomainEntry& entry, RuleTotals& totals) {
  CompiledRules out;
  if ((totals.rules += entry.rules.size()) > kMaxRules) return Bad("allow", "at most 256 rules");
  for (size_t i = 0; i < entry.rules.size(); ++i) {
    const Rule& rule = entry.rules[i];
    const std::string field = fmt::format("allow[\"{}\"][{}]", entry.pattern, i);
    SB_TRYV(std::visit([&](const auto& action) { return CheckAction(action, field, totals); }, rule.action));
    One one;
    one.rule = &rule;
    if (rule.match) {
      const std::string at = field + ".match";
      if (rule.match->methods.size() > kMaxMethods)
        return Bad(at + ".method", fmt::format("at most {} methods", kMaxMethods));
      for (const std::string& method : rule.match->methods) SB_TRYV(CountShown(method.size(), totals, at + ".method"));
      SB_TRY(one.path, CompiledMatcher::Compile(rule.match->path, at + ".path", false, totals));
      SB_TRY(one.query, CompilePairs(rule.match->query, at + ".queryString", false, totals));
      SB_TRY(one.headers, CompilePairs(rule.match->headers, at + ".headers", true, totals));
      out.has_path_rules_ = out.has_path_rules_ || rule.match->path;
    }
    out.rules_.push_back(std::move(one));
  }
  return out;
}

bool CompiledRules::AllFit(const std::vector<Pair>& wanted, const std::vector<NameValue>* given, StepBudget& budget) {
  static const std::vector<NameValue> kNone;
  const auto& list = given != nullptr ? *given : kNone;
  return std::ranges::all_of(wanted, [&](const Pair& want) {
    return std::ranges::any_of(list, [&](const NameValue& pair) {
      return want.key.Fits(pair.first, budget) && want.value.Fits(pair.second, budget);
    });
  });
}

bool CompiledRules::Fits(const One& one, const RequestView& request, StepBudget& budget) {
  if (!one.rule->match) return true;
  const auto& methods = one.rule->match->methods;
  // Servers that fold the case must not read another method than the rules did.
  auto asked = [&](const std::string& m) { return wire::EqualsIgnoreCase(m, request.method); };
  if (!methods.empty() && std::ranges::none_of(methods, asked)) return false;
  return one.path.Fits(request.path, budget) && AllFit(one.query, request.query, budget) &&
         AllFit(one.headers, request.headers, budget);
}

Result<const Rule*> CompiledRules::Find(const RequestView& request, StepBudget& budget) const {
  for (const One& one : rules_) {
    const bool fits = Fits(one, request, budget);
    if (budget.spent()) return Fail(Code::kTooLarge, "the request is too long for the matchers of the domain's rules");
    if (fits) return one.rule;
  }
  return static_cast<const Rule*>(nullptr);
}

}  // namespace sandbar::egress
