// The network policy as clients send it, in both dialects:
//   SDK 2 and later: {"mode":"allow-all"|"deny-all"}, or {"allow":…, "subnets":{"allow":…,"deny":…}} without a mode
//   SDK 1:           {"mode":"custom","allowedDomains":…,"allowedCIDRs":…,"deniedCIDRs":…,"injectionRules":…}
// Decodes into the mode that we can enforce; `unsupported` says why there is none. A policy that allows nothing (empty,
// or only denials) is deny-all by the protocol. Values only, any thread.
#pragma once

#include <boost/json/fwd.hpp>
#include <string>

#include "net/policy.h"

namespace sandbar::wire {
class JsonDecoder;
}

namespace sandbar::api {

struct PolicyBody {
  net::NetworkPolicy policy;
  std::string unsupported;  // not empty: refuse with this text
  void ReadJson(wire::JsonDecoder& decoder, const boost::json::value& value);
};

}  // namespace sandbar::api
