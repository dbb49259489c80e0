// Network policies as JSON. Values only, any thread; fuzzed through the request bodies.
//
// Requests come in two shapes, which one reader takes:
//   SDK 2 and later: {"mode":"allow-all"|"deny-all"}, or without a mode {"allow":…, "subnets":{"allow":…,"deny":…}},
//                    where `allow` is a list of domains or an object from domain to rules
//   SDK 1:           {"mode":"custom","allowedDomains":…,"allowedCIDRs":…,"deniedCIDRs":…,"injectionRules":…}
// A policy that says nothing at all is deny-all. Answers have a shape of their own, without the values of headers.
//
//   SB_TRY(NetworkPolicy policy, ParsePolicy(R"({"allow":["example.com"]})"));
#pragma once

#include <boost/json/fwd.hpp>
#include <string>
#include <string_view>

#include "egress/policy.h"

namespace sandbar::wire {
class JsonDecoder;
}

namespace sandbar::egress {

// For request bodies that have a policy as a member. Domains come out canonical and each at most once.
struct PolicyBody {
  NetworkPolicy policy;
  void ReadJson(wire::JsonDecoder& decoder, const boost::json::value& value);
};

// Shape and types only, kBadRequest; Compile() says whether the values make sense.
Result<NetworkPolicy> ParsePolicy(std::string_view text);

// The shape of SDK 2 and later with everything in it, secrets too. ParsePolicy gives the same policy back.
boost::json::object PolicyJson(const NetworkPolicy& policy);

// What the API may answer: names of injected headers, never values.
boost::json::object AnswerJson(const NetworkPolicy& policy);

}  // namespace sandbar::egress
