#include "egress/policy_json.h"

#include <algorithm>
#include <boost/json.hpp>
#include <map>
#include <unordered_map>

#include "wire/json_decode.h"

namespace sandbar::egress {
namespace {

namespace json = boost::json;

constexpr size_t kManyDomains = 1000;
constexpr size_t kMaxMentions = 10'000;  // of domains
constexpr size_t kMaxParts = 20'000;     // objects and arrays; a policy within the limits of Compile has fewer
constexpr wire::JsonLimits kLimits{.bytes = 4 << 20, .depth = 32};

enum class ModeWord { kAllowAll, kDenyAll, kCustom };
BOOST_DESCRIBE_ENUM(ModeWord, kAllowAll, kDenyAll, kCustom)

struct MatcherBody {
  std::optional<std::string> exact, starts_with, regex;
  void Check(wire::JsonIssues& issues) const {
    if (exact.has_value() + starts_with.has_value() + regex.has_value() != 1)
      issues.Add("", "must have exactly one of `exact`, `startsWith`, `regex`");
  }
};
BOOST_DESCRIBE_STRUCT(MatcherBody, (), (exact, starts_with, regex))

struct PairBody {
  std::optional<MatcherBody> key, value;
};
BOOST_DESCRIBE_STRUCT(PairBody, (), (key, value))

struct MatchBody {
  std::optional<MatcherBody> path;
  std::vector<std::string> method;
  std::vector<PairBody> query_string, headers;
};
BOOST_DESCRIBE_STRUCT(MatchBody, (), (path, method, query_string, headers))

struct TransformBody {
  std::map<std::string, std::string> headers;
};
BOOST_DESCRIBE_STRUCT(TransformBody, (), (headers))

struct ResponseBody {
  int status_code = 0;
  std::map<std::string, std::string> headers;
  std::optional<std::string> body, content_type;
};
BOOST_DESCRIBE_STRUCT(ResponseBody, (), (status_code, headers, body, content_type))

struct RuleBody {
  std::optional<MatchBody> match;
  std::optional<std::vector<TransformBody>> transform;
  std::optional<std::string> forward_url;
  std::optional<ResponseBody> response;
  static constexpr wire::JsonAlias kJsonAliases[] = {{"forwardURL", "forwardUrl"}};

  void Check(wire::JsonIssues& issues) const {
    if (transform.has_value() + forward_url.has_value() + response.has_value() != 1)
      issues.Add("", "must have exactly one of `transform`, `forwardURL`, `response`");
  }
};
BOOST_DESCRIBE_STRUCT(RuleBody, (), (match, transform, forward_url, response))

struct InjectionBody {
  std::string domain;
  std::map<std::string, std::string> headers;
  std::optional<MatchBody> match;
};
BOOST_DESCRIBE_STRUCT(InjectionBody, (), (domain, headers, match))

struct ForwardBody {
  std::string domain;
  std::string forward_url;
  std::optional<MatchBody> match;
  static constexpr wire::JsonAlias kJsonAliases[] = {{"forwardURL", "forwardUrl"}};
};
BOOST_DESCRIBE_STRUCT(ForwardBody, (), (domain, forward_url, match))

struct SubnetsBody {
  std::vector<std::string> allow, deny;
};
BOOST_DESCRIBE_STRUCT(SubnetsBody, (), (allow, deny))

struct RequestBody {
  std::optional<ModeWord> mode;
  std::optional<json::value> allow;
  std::optional<SubnetsBody> subnets;
  std::vector<std::string> allowed_domains, allowed_cidrs, denied_cidrs;
  std::vector<InjectionBody> injection_rules;
  std::vector<ForwardBody> forward_rules;
  static constexpr wire::JsonAlias kJsonAliases[] = {{"allowedCIDRs", "allowedCidrs"}, {"deniedCIDRs", "deniedCidrs"}};

  void Check(wire::JsonIssues& issues) const {
    bool old = !allowed_domains.empty() || !allowed_cidrs.empty() || !denied_cidrs.empty() ||
               !injection_rules.empty() || !forward_rules.empty();
    bool empty = !old && (!subnets || (subnets->allow.empty() && subnets->deny.empty())) && IsEmpty(allow);
    if (mode && *mode != ModeWord::kCustom && !empty) issues.Add("mode", "allow-all and deny-all take no rules");
    if (old && (allow || subnets))
      issues.Add("allow", "belongs to another form of a policy than allowedDomains and the like: use one of the two");
  }
  static bool IsEmpty(const std::optional<json::value>& v) {
    if (!v) return true;
    if (const auto* list = v->if_array()) return list->empty();
    const auto* rules = v->if_object();
    return rules != nullptr && rules->empty();
  }
};
BOOST_DESCRIBE_STRUCT(RequestBody, (),
                      (mode, allow, subnets, allowed_domains, allowed_cidrs, denied_cidrs, injection_rules,
                       forward_rules))

std::optional<Matcher> ToMatcher(const std::optional<MatcherBody>& body) {
  if (!body) return std::nullopt;
  if (body->exact) return Matcher{Matcher::Kind::kExact, *body->exact};
  if (body->starts_with) return Matcher{Matcher::Kind::kStartsWith, *body->starts_with};
  return Matcher{Matcher::Kind::kRegex, body->regex.value_or("")};
}

std::vector<PairMatch> ToPairs(const std::vector<PairBody>& bodies) {
  std::vector<PairMatch> out;
  for (const PairBody& body : bodies) out.push_back({ToMatcher(body.key), ToMatcher(body.value)});
  return out;
}

std::optional<RequestMatch> ToMatch(const std::optional<MatchBody>& body) {
  if (!body) return std::nullopt;
  return RequestMatch{ToMatcher(body->path), body->method, ToPairs(body->query_string), ToPairs(body->headers)};
}

std::vector<NameValue> ToHeaders(const std::map<std::string, std::string>& headers) {
  return {headers.begin(), headers.end()};
}

Rule ToRule(RuleBody body) {
  Rule rule;
  rule.match = ToMatch(body.match);
  if (body.forward_url) {
    rule.action = ForwardAction{*body.forward_url};
  } else if (body.response) {
    rule.action = RespondAction{body.response->status_code, ToHeaders(body.response->headers),
                                body.response->body.value_or(""), body.response->content_type.value_or("")};
  } else if (body.transform) {
    std::map<std::string, std::string> headers;  // of several with the same name the last counts
    for (auto& transform : *body.transform)
      for (auto& [name, value] : transform.headers) headers[name] = value;
    rule.action = TransformAction{ToHeaders(headers)};
  }
  return rule;
}

// The domains of a policy while it is read.
class Domains {
 public:
  Domains(NetworkPolicy* policy, wire::JsonDecoder* decoder) : policy_(policy), decoder_(decoder) {}

  // Finds or adds. A domain that is spelled in two ways is one. Valid until the next call.
  DomainEntry* Entry(const std::string& domain) {
    auto& domains = policy_->domains;
    // Compile refuses so many; until then they must not cost more than their text.
    if (domains.size() > kManyDomains) return &domains.back();
    if (++mentions_ > kMaxMentions) {
      if (mentions_ == kMaxMentions + 1) decoder_->Add("", "names domains more than 10000 times");
      return &domains.back();
    }
    auto pattern = CanonicalPattern(domain);
    if (!pattern) decoder_->Add("", "\"" + domain.substr(0, 64) + "\": " + pattern.error().message);
    const std::string& name = pattern ? *pattern : domain;
    auto [it, added] = numbers_.try_emplace(name, domains.size());
    if (added) domains.push_back({name, {}});
    return &domains[it->second];
  }

 private:
  NetworkPolicy* policy_;
  wire::JsonDecoder* decoder_;
  size_t mentions_ = 0;
  std::unordered_map<std::string, size_t> numbers_;
};

void ReadAllow(const json::value& allow, Domains& domains, wire::JsonDecoder& decoder) {
  if (const auto* rules = allow.if_object()) {
    for (const auto& member : *rules) {
      std::vector<RuleBody> bodies;
      decoder.At(member.key(), [&] {
        decoder.Read(member.value(), bodies);
        DomainEntry* entry = domains.Entry(member.key());
        for (RuleBody& body : bodies) entry->rules.push_back(ToRule(std::move(body)));
      });
    }
    return;
  }
  if (!allow.is_array()) return decoder.Add("", "must be an array of domains, or an object from domains to rules");
  std::vector<std::string> names;
  decoder.Read(allow, names);
  for (const std::string& name : names) domains.Entry(name);
}

json::object MatcherJson(const Matcher& m) {
  switch (m.kind) {
    case Matcher::Kind::kExact:
      return {{"exact", m.text}};
    case Matcher::Kind::kStartsWith:
      return {{"startsWith", m.text}};
    case Matcher::Kind::kRegex:
      break;
  }
  return {{"regex", m.text}};
}

json::array PairsJson(const std::vector<PairMatch>& pairs) {
  json::array out;
  for (const PairMatch& pair : pairs) {
    json::object one;
    if (pair.key) one["key"] = MatcherJson(*pair.key);
    if (pair.value) one["value"] = MatcherJson(*pair.value);
    out.emplace_back(std::move(one));
  }
  return out;
}

json::array Strings(const std::vector<std::string>& list) {
  return json::array(list.begin(), list.end());
}

void AddMatch(json::object& out, const std::optional<RequestMatch>& match) {
  if (!match) return;
  json::object m;
  if (match->path) m["path"] = MatcherJson(*match->path);
  if (!match->methods.empty()) m["method"] = Strings(match->methods);
  if (!match->query.empty()) m["queryString"] = PairsJson(match->query);
  if (!match->headers.empty()) m["headers"] = PairsJson(match->headers);
  out["match"] = std::move(m);
}

json::object HeadersJson(const std::vector<NameValue>& headers) {
  json::object out;
  for (const auto& [name, value] : headers) out[name] = value;
  return out;
}

json::array HeaderNames(const std::vector<NameValue>& headers) {
  json::array out;
  for (const auto& [name, value] : headers) out.emplace_back(name);
  return out;
}

json::object RuleJson(const Rule& rule) {
  json::object out;
  AddMatch(out, rule.match);
  if (const auto* transform = std::get_if<TransformAction>(&rule.action)) {
    out["transform"] = json::array{json::object{{"headers", HeadersJson(transform->headers)}}};
  } else if (const auto* forward = std::get_if<ForwardAction>(&rule.action)) {
    out["forwardURL"] = forward->url;
  } else if (const auto* respond = std::get_if<RespondAction>(&rule.action)) {
    json::object response{{"statusCode", respond->status}, {"headers", HeadersJson(respond->headers)}};
    if (!respond->body.empty()) response["body"] = respond->body;
    if (!respond->content_type.empty()) response["contentType"] = respond->content_type;
    out["response"] = std::move(response);
  }
  return out;
}

// The three lists of rules that an answer has.
struct AnswerRules {
  json::array injection, forward, response;

  void Add(const std::string& domain, const Rule& rule) {
    json::object row{{"domain", domain}};
    json::array* list = &injection;
    if (const auto* transform = std::get_if<TransformAction>(&rule.action)) {
      row["headerNames"] = HeaderNames(transform->headers);
    } else if (const auto* forward_to = std::get_if<ForwardAction>(&rule.action)) {
      row["forwardURL"] = forward_to->url;
      list = &forward;
    } else if (const auto* respond = std::get_if<RespondAction>(&rule.action)) {
      row["statusCode"] = respond->status;
      row["headerNames"] = HeaderNames(respond->headers);
      list = &response;
    }
    AddMatch(row, rule.match);
    list->emplace_back(std::move(row));
  }
};

// Whether there are at most `left` objects and arrays in it. The parser has bounded the depth.
bool FewParts(const json::value& value, size_t& left) {
  const auto* object = value.if_object();
  const auto* array = value.if_array();
  if ((object != nullptr || array != nullptr) && left-- == 0) return false;
  auto member = [&left](const auto& m) { return FewParts(m.value(), left); };
  if (object != nullptr) return std::ranges::all_of(*object, member);
  return array == nullptr || std::ranges::all_of(*array, [&left](const auto& v) { return FewParts(v, left); });
}

void AddIf(json::object& out, std::string_view key, json::array list) {
  if (!list.empty()) out[key] = std::move(list);
}

}  // namespace

void PolicyBody::ReadJson(wire::JsonDecoder& decoder, const json::value& value) {
  // Said before it is decoded: that takes microseconds for each part.
  if (size_t left = kMaxParts; !FewParts(value, left))
    return decoder.Add("", "has too many rules and matchers (more than 20000 objects and arrays)");
  RequestBody body;
  decoder.Read(value, body);
  policy.mode = EgressMode::kCustom;
  if (body.mode == ModeWord::kAllowAll) policy.mode = EgressMode::kAllowAll;
  if (body.mode == ModeWord::kDenyAll) policy.mode = EgressMode::kDenyAll;
  Domains domains(&policy, &decoder);
  if (body.allow) decoder.At("allow", [&] { ReadAllow(*body.allow, domains, decoder); });
  decoder.At("allowedDomains", [&] {
    for (const std::string& domain : body.allowed_domains) domains.Entry(domain);
  });
  decoder.At("injectionRules", [&] {
    for (const InjectionBody& rule : body.injection_rules) {
      DomainEntry* entry = domains.Entry(rule.domain);
      entry->rules.push_back({ToMatch(rule.match), TransformAction{ToHeaders(rule.headers)}});
    }
  });
  decoder.At("forwardRules", [&] {
    for (const ForwardBody& rule : body.forward_rules)
      domains.Entry(rule.domain)->rules.push_back({ToMatch(rule.match), ForwardAction{rule.forward_url}});
  });
  policy.allow_cidrs = body.subnets ? body.subnets->allow : body.allowed_cidrs;
  policy.deny_cidrs = body.subnets ? body.subnets->deny : body.denied_cidrs;
  if (policy.domains.empty() && policy.allow_cidrs.empty() && policy.deny_cidrs.empty() &&
      policy.mode == EgressMode::kCustom)
    policy.mode = EgressMode::kDenyAll;
}

Result<NetworkPolicy> ParsePolicy(std::string_view text) {
  SB_TRY(PolicyBody body, wire::DecodeJson<PolicyBody>(text, kLimits));
  return std::move(body.policy);
}

json::object PolicyJson(const NetworkPolicy& policy) {
  if (policy.mode != EgressMode::kCustom) return {{"mode", ModeName(policy.mode)}};
  json::object allow, subnets, out;
  json::array names;  // enough where no domain has rules
  bool ruled = false;
  for (const DomainEntry& entry : policy.domains) {
    json::array rules;
    for (const Rule& rule : entry.rules) rules.emplace_back(RuleJson(rule));
    ruled = ruled || !rules.empty();
    allow[entry.pattern] = std::move(rules);
    names.emplace_back(entry.pattern);
  }
  AddIf(subnets, "allow", Strings(policy.allow_cidrs));
  AddIf(subnets, "deny", Strings(policy.deny_cidrs));
  if (ruled) {
    out["allow"] = std::move(allow);
  } else {
    AddIf(out, "allow", std::move(names));
  }
  if (!subnets.empty()) out["subnets"] = std::move(subnets);
  return out;
}

json::object AnswerJson(const NetworkPolicy& policy) {
  json::object out{{"mode", ModeName(policy.mode)}};
  if (policy.mode != EgressMode::kCustom) return out;
  json::array domains;
  AnswerRules rules;
  for (const DomainEntry& entry : policy.domains) {
    domains.emplace_back(entry.pattern);
    for (const Rule& rule : entry.rules) rules.Add(entry.pattern, rule);
  }
  AddIf(out, "allowedDomains", std::move(domains));
  AddIf(out, "allowedCIDRs", Strings(policy.allow_cidrs));
  AddIf(out, "deniedCIDRs", Strings(policy.deny_cidrs));
  AddIf(out, "injectionRules", std::move(rules.injection));
  AddIf(out, "forwardRules", std::move(rules.forward));
  AddIf(out, "responseRules", std::move(rules.response));
  return out;
}

}  // namespace sandbar::egress
