// IP addresses and which of them a machine may reach: values, no sockets but for IsHostAddress. Any thread.
// IPv4 is kept in its IPv6-mapped form, so there is one type and one check.
//
//   SB_TRY(IpAddress a, ParseAddress("192.0.2.1"));
//   if (std::string why = AddressDenied(a.bytes, config); !why.empty()) …   // egress.h
#pragma once

#include <sys/socket.h>

#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace sandbar::egress {

struct IpAddress {
  std::array<uint8_t, 16> bytes{};
  bool is_v4() const;  // ::ffff:a.b.c.d
  auto operator<=>(const IpAddress&) const = default;
};

struct Endpoint {
  IpAddress address;
  uint16_t port = 0;
  auto operator<=>(const Endpoint&) const = default;
};

struct Cidr {
  IpAddress base;  // host bits are zero
  int bits = 128;  // counted on the mapped form: a v4 /8 is 104
  bool Contains(const IpAddress& address) const;
};

// Dotted quad or RFC 4291 text only: none of the shorthands (octal, hex, "127.1") that inet_aton takes.
Result<IpAddress> ParseAddress(std::string_view text);
// 4 bytes of an IPv4 or 16 of an IPv6 address, in network order.
Result<IpAddress> FromRaw(std::string_view bytes);
std::string ToRawV4(const IpAddress& address);  // the 4 bytes of a mapped one
// "1.2.3.4:53" or "[::1]:53".
Result<Endpoint> ParseEndpoint(std::string_view text);
// "10.0.0.0/8", or a bare address for just that one. Host bits must be zero: "10.0.0.1/8" is likely a mistake.
Result<Cidr> ParseCidr(std::string_view text);

std::string ToString(const IpAddress& address);
std::string ToString(const Endpoint& endpoint);

// To and from the kernel's form. The sockaddr is AF_INET for mapped addresses: what was checked is what is dialled.
socklen_t ToSockaddr(const Endpoint& endpoint, sockaddr_storage& out);
Result<Endpoint> FromSockaddr(const sockaddr_storage& address);

// Whether the kernel delivers this address to the host itself (interfaces and local routes).
bool IsHostAddress(const IpAddress& address);

}  // namespace sandbar::egress
