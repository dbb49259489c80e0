#include "api/vercel_policy.h"

#include <boost/json.hpp>
#include <optional>
#include <vector>

#include "wire/json_decode.h"

namespace sandbar::api {
namespace {

namespace json = boost::json;

enum class Mode { kAllowAll, kDenyAll, kCustom };
BOOST_DESCRIBE_ENUM(Mode, kAllowAll, kDenyAll, kCustom)

struct Subnets {
  std::vector<std::string> allow, deny;
};
BOOST_DESCRIBE_STRUCT(Subnets, (), (allow, deny))

struct Wire {
  std::optional<Mode> mode;
  std::optional<json::value> allow;  // domains, or domain -> rules
  std::optional<Subnets> subnets;
  std::vector<std::string> allowed_domains, allowed_cidrs, denied_cidrs;
  std::vector<json::value> injection_rules, forward_rules;
  static constexpr wire::JsonAlias kJsonAliases[] = {{"allowedCIDRs", "allowedCidrs"}, {"deniedCIDRs", "deniedCidrs"}};

  bool AllowGiven() const {
    if (!allow) return false;
    if (const auto* list = allow->if_array()) return !list->empty();
    const auto* rules = allow->if_object();
    return rules != nullptr && !rules->empty();
  }
  bool AllowsSomething() const {
    return AllowGiven() || (subnets && !subnets->allow.empty()) || !allowed_domains.empty() || !allowed_cidrs.empty() ||
           !injection_rules.empty() || !forward_rules.empty();
  }
  bool HasRules() const { return AllowsSomething() || (subnets && !subnets->deny.empty()) || !denied_cidrs.empty(); }

  void Check(wire::JsonIssues& issues) const {
    if (allow && !allow->is_array() && !allow->is_object()) issues.Add("allow", "must be an array or an object");
    bool plain = mode && *mode != Mode::kCustom;
    if (plain && HasRules()) issues.Add("mode", "allow-all and deny-all take no rules");
  }
};
BOOST_DESCRIBE_STRUCT(Wire, (),
                      (mode, allow, subnets, allowed_domains, allowed_cidrs, denied_cidrs, injection_rules,
                       forward_rules))

}  // namespace

void PolicyBody::ReadJson(wire::JsonDecoder& decoder, const json::value& value) {
  Wire body;
  decoder.Read(value, body);
  if (body.mode == Mode::kAllowAll) {
    policy.mode = net::EgressMode::kAllowAll;
  } else if (body.mode == Mode::kDenyAll || !body.AllowsSomething()) {
    policy.mode = net::EgressMode::kDenyAll;
  } else {
    unsupported =
        "network policies with rules are not available on this server: it enforces \"allow-all\" and \"deny-all\" only";
  }
}

}  // namespace sandbar::api
