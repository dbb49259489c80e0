// Asks the operator's resolver: a fresh id from a fresh port, a second try, TCP when the answer is cut short. Only a
// reply to exactly that question comes back. Single loop.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "egress/guarded_connect.h"
#include "wire/dns.h"

namespace sandbar::egress {

inline constexpr size_t kDnsMaxTcpMessage = 65535;

// The configured resolver, else the first usable nameserver of a resolv.conf's text; nothing when there is none.
std::optional<OperatorEndpoint> ChooseResolver(const std::string& configured, std::string_view resolv_conf);
// The same with the host's /etc/resolv.conf.
std::optional<OperatorEndpoint> OperatorResolver(const EgressConfig& config);

// The whole reply, carrying `query`'s id. `timeout` is for everything together. kTimeout, kUnavailable, kCancelled.
Task<std::string> AskResolver(OperatorEndpoint upstream, wire::DnsQuery query, std::chrono::milliseconds timeout);

// DNS over TCP: one length-prefixed message.
Task<std::string> ReadDnsMessage(Stream* stream, size_t limit);
Task<> WriteDnsMessage(Stream* stream, std::string message);

}  // namespace sandbar::egress
