// Dials by name on behalf of a machine or of the server itself: the daemon resolves the canonical name with the
// operator's resolver and dials only addresses that both the policy's deny list and GuardedConnect let through. So the
// name that was decided on is the name that is dialled, and a rebound answer leads nowhere. Single loop.
//
//   SB_CO_TRY(Stream up, co_await DialName(std::move(name), 443, policy, config));
#pragma once

#include <string>
#include <vector>

#include "egress/guarded_connect.h"
#include "egress/policy.h"

namespace sandbar::egress {

// A records of a canonical name (AAAA too where the host has IPv6 routes), in the resolver's order, at most 16.
// kNotFound when the name does not exist, kUnavailable when no resolver answers.
Task<std::vector<IpAddress>> ResolveName(std::string name, const EgressConfig* config);

// Tries the addresses in turn. kForbidden when none of them may be dialled (Cause::kNetworkPolicy: by the policy's deny
// list), kNotFound, kUnavailable, kTimeout. `policy` may be null (only the operator's rules apply). `config` outlives
// the call.
Task<Stream> DialName(std::string name, uint16_t port, PolicyRef policy, const EgressConfig* config);

// The error for an address that the policy's deny list contains.
Error AddressDeniedByPolicy();

}  // namespace sandbar::egress
