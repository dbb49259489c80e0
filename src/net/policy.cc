#include "net/policy.h"

#include <fmt/format.h>
#include <idn2.h>
#include <re2/re2.h>

#include <algorithm>
#include <array>

#include "wire/text.h"
#include "wire/url.h"

namespace sandbar::net {

namespace {

constexpr size_t kMaxName = 253;
constexpr size_t kMaxLabel = 63;
constexpr size_t kMaxDomains = 1000;
constexpr size_t kMaxCidrs = 1000;
constexpr size_t kMaxRules = 256;
constexpr size_t kMaxRegexText = 64 << 10;
constexpr size_t kMaxBody = 64 << 10;
constexpr size_t kMaxHeaderValue = 16 << 10;
constexpr int64_t kRegexMemory = 1 << 20;
constexpr std::array<std::string_view, 8> kFramingHeaders = {
    "connection", "content-length", "transfer-encoding", "host", "upgrade", "te", "trailer", "keep-alive"};

bool IsNameByte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

bool IsTokenByte(char c) {
  constexpr std::string_view kOther = "!#$%&'*+-.^_`|~";
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || kOther.contains(c);
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
  auto want = Labels(pattern);
  auto have = Labels(name);
  bool any_depth = want.front() == "*";
  if (any_depth ? have.size() < want.size() : have.size() != want.size()) return false;
  for (size_t i = 0; i < want.size(); ++i) {
    std::string_view label = want[want.size() - 1 - i];
    if (label != "*" && label != have[have.size() - 1 - i]) return false;
  }
  return true;
}

// A matcher with its regular expression, if it is one.
struct CompiledMatcher {
  const Matcher* matcher = nullptr;
  std::shared_ptr<re2::RE2> regex;
  bool fold = false;  // header names: any case

  bool Fits(std::string_view text) const {
    if (matcher == nullptr) return true;
    if (regex) return re2::RE2::PartialMatch(re2::StringPiece(text.data(), text.size()), *regex);
    std::string folded = fold ? wire::LowerCase(text) : std::string(text);
    std::string want = fold ? wire::LowerCase(matcher->text) : matcher->text;
    return matcher->kind == Matcher::Kind::kExact ? folded == want : folded.starts_with(want);
  }
};

struct CompiledPair {
  CompiledMatcher key, value;
};

struct CompiledPolicy::CompiledRule {
  const Rule* rule = nullptr;
  CompiledMatcher path;
  std::vector<CompiledPair> query, headers;

  static bool AllFit(const std::vector<CompiledPair>& wanted, const std::vector<NameValue>* pairs) {
    static const std::vector<NameValue> kNone;
    const auto& list = pairs != nullptr ? *pairs : kNone;
    return std::ranges::all_of(wanted, [&](const CompiledPair& want) {
      return std::ranges::any_of(
          list, [&](const NameValue& pair) { return want.key.Fits(pair.first) && want.value.Fits(pair.second); });
    });
  }
  bool Fits(const RequestView& request) const {
    if (!rule->match) return true;
    const auto& methods = rule->match->methods;
    // Servers that fold the case must not read another method than the rules did.
    auto asked = [&](const std::string& m) { return wire::EqualsIgnoreCase(m, request.method); };
    if (!methods.empty() && std::ranges::none_of(methods, asked)) return false;
    return path.Fits(request.path) && AllFit(query, request.query) && AllFit(headers, request.headers);
  }
};

CompiledPolicy::CompiledPolicy(NetworkPolicy policy) : policy_(std::move(policy)) {}
CompiledPolicy::~CompiledPolicy() = default;

namespace {

std::unexpected<Error> Bad(const std::string& field, const std::string& why) {
  return Fail(Code::kBadRequest, "networkPolicy." + field + ": " + why);
}

Result<CompiledMatcher> CompileMatcher(const std::optional<Matcher>& matcher, const std::string& field, bool fold,
                                       size_t& regex_bytes) {
  CompiledMatcher out;
  if (!matcher) return out;
  out.matcher = &*matcher;
  out.fold = fold;
  if (matcher->text.size() > kMaxRegexText) return Bad(field, "is too long");
  if (matcher->kind != Matcher::Kind::kRegex) return out;
  regex_bytes += matcher->text.size();
  if (regex_bytes > kMaxRegexText)
    return Bad(field, "the policy's regular expressions are longer than 64 KiB together");
  re2::RE2::Options options;
  options.set_log_errors(false);
  options.set_max_mem(kRegexMemory);
  options.set_case_sensitive(!fold);
  out.regex = std::make_shared<re2::RE2>(matcher->text, options);
  if (!out.regex->ok()) return Bad(field, "is not a regular expression (RE2): " + out.regex->error());
  return out;
}

Result<std::vector<CompiledPair>> CompilePairs(const std::vector<PairMatch>& pairs, const std::string& field,
                                               bool fold_keys, size_t& regex_bytes) {
  std::vector<CompiledPair> out;
  for (const PairMatch& pair : pairs) {
    SB_TRY(CompiledMatcher key, CompileMatcher(pair.key, field + ".key", fold_keys, regex_bytes));
    SB_TRY(CompiledMatcher value, CompileMatcher(pair.value, field + ".value", false, regex_bytes));
    out.push_back({std::move(key), std::move(value)});
  }
  return out;
}

Result<> CheckHeaders(const std::vector<NameValue>& headers, const std::string& field) {
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
  }
  return {};
}

Result<> CheckAction(const TransformAction& action, const std::string& field) {
  return CheckHeaders(action.headers, field + ".transform.headers");
}

Result<> CheckAction(const ForwardAction& action, const std::string& field) {
  auto url = wire::ParseUrl(action.url);
  bool web = url && (url->scheme == "https" || url->scheme == "http");
  if (!web) return Bad(field + ".forwardURL", "must be an http or https URL without user name and password");
  return {};
}

Result<> CheckAction(const RespondAction& action, const std::string& field) {
  const std::string at = field + ".response";
  if (action.status < 200 || action.status > 599) return Bad(at + ".statusCode", "must be 200 to 599");
  bool bodiless = action.status == 204 || action.status == 205 || action.status == 304;
  if (bodiless && !action.body.empty()) return Bad(at + ".body", fmt::format("a {} has no body", action.status));
  if (!action.body.empty() && action.content_type.empty()) return Bad(at + ".contentType", "is required with a body");
  if (action.body.size() > kMaxBody) return Bad(at + ".body", "at most 64 KiB");
  const std::vector<NameValue> type{{"content-type", action.content_type}};
  SB_TRYV(CheckHeaders(type, at));
  return CheckHeaders(action.headers, at + ".headers");
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
  size_t rules = 0;
  size_t regex_bytes = 0;
  for (DomainEntry& entry : policy_.domains) {
    auto pattern = CanonicalPattern(entry.pattern);
    if (!pattern) return Bad("allow", "\"" + entry.pattern + "\": " + pattern.error().message);
    entry.pattern = *std::move(pattern);
    const std::string field = "allow[\"" + entry.pattern + "\"]";
    if ((rules += entry.rules.size()) > kMaxRules) return Bad("allow", "at most 256 rules");
    std::vector<CompiledRule> compiled;
    for (const Rule& rule : entry.rules) {
      SB_TRYV(std::visit([&](const auto& action) { return CheckAction(action, field); }, rule.action));
      CompiledRule c;
      c.rule = &rule;
      if (rule.match) {
        const std::string at = field + ".match";
        SB_TRY(c.path, CompileMatcher(rule.match->path, at + ".path", false, regex_bytes));
        SB_TRY(c.query, CompilePairs(rule.match->query, at + ".queryString", false, regex_bytes));
        SB_TRY(c.headers, CompilePairs(rule.match->headers, at + ".headers", true, regex_bytes));
      }
      compiled.push_back(std::move(c));
    }
    rules_.push_back(std::move(compiled));
  }
  return {};
}

const DomainEntry* CompiledPolicy::FindName(std::string_view name) const {
  auto it = std::ranges::find_if(policy_.domains, [&](const DomainEntry& e) { return PatternFits(e.pattern, name); });
  return it == policy_.domains.end() ? nullptr : &*it;
}

AddressVerdict CompiledPolicy::JudgeAddress(const IpAddress& address) const {
  auto contains = [&](const Cidr& c) { return c.Contains(address); };
  if (std::ranges::any_of(deny_, contains)) return AddressVerdict::kDenied;
  if (std::ranges::any_of(allow_, contains)) return AddressVerdict::kAllowed;
  return AddressVerdict::kNoRule;
}

const Rule* CompiledPolicy::FindRule(const DomainEntry& entry, const RequestView& request) const {
  auto index = static_cast<size_t>(&entry - policy_.domains.data());
  SB_CHECK(index < rules_.size());
  for (const CompiledRule& rule : rules_[index])
    if (rule.Fits(request)) return rule.rule;
  return nullptr;
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

}  // namespace sandbar::net
