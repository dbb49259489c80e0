#include "egress/address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <memory>
#include <optional>

#include "base/fd.h"
#include "egress/egress.h"

namespace sandbar::egress {

namespace {

constexpr std::array<uint8_t, 12> kMappedPrefix = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
constexpr int kMappedBits = 96;

IpAddress FromV4(const in_addr& v4) {
  IpAddress a;
  std::ranges::copy(kMappedPrefix, a.bytes.begin());
  std::memcpy(a.bytes.data() + kMappedPrefix.size(), &v4, sizeof(v4));
  return a;
}

struct Reserved {
  std::string_view cidr;
  std::string_view why;
};

// First match wins, so the narrower, better named entries come first. Sources: the IANA special-purpose registries and
// the cloud vendors' documented metadata and wire-server addresses.
constexpr Reserved kReservedV4[] = {
    {"169.254.169.254/32", "cloud metadata"},
    {"168.63.129.16/32", "cloud metadata"},
    {"100.100.100.200/32", "cloud metadata"},
    {"192.0.0.192/32", "cloud metadata"},
    {"0.0.0.0/8", "this network"},
    {"10.0.0.0/8", "private"},
    {"100.64.0.0/10", "carrier-grade NAT"},
    {"127.0.0.0/8", "loopback"},
    {"169.254.0.0/16", "link-local"},
    {"172.16.0.0/12", "private"},
    {"192.0.0.0/24", "protocol assignments"},
    {"192.0.2.0/24", "documentation"},
    {"192.88.99.0/24", "6to4 relay"},
    {"192.168.0.0/16", "private"},
    {"198.18.0.0/15", "benchmarking"},
    {"198.51.100.0/24", "documentation"},
    {"203.0.113.0/24", "documentation"},
    {"224.0.0.0/4", "multicast"},
    {"255.255.255.255/32", "broadcast"},
    {"240.0.0.0/4", "reserved"},
};

constexpr Reserved kReservedV6[] = {
    {"fd00:ec2::/32", "cloud metadata"}, {"::/128", "unspecified"},      {"::1/128", "loopback"},
    {"::/96", "IPv4-compatible"},        {"64:ff9b::/96", "NAT64"},      {"64:ff9b:1::/48", "NAT64"},
    {"100::/64", "discard-only"},        {"2001::/32", "Teredo"},        {"2001::/23", "protocol assignments"},
    {"2001:db8::/32", "documentation"},  {"3fff::/20", "documentation"}, {"2002::/16", "6to4"},
    {"fc00::/7", "unique local"},        {"fe80::/10", "link-local"},    {"fec0::/10", "site-local"},
    {"ff00::/8", "multicast"},
};
constexpr std::string_view kGlobalUnicastV6 = "2000::/3";

struct ReservedRange {
  Cidr cidr;
  std::string_view why;
};

template <size_t N>
std::vector<ReservedRange> ParseTable(const Reserved (&table)[N]) {
  std::vector<ReservedRange> out;
  for (const Reserved& r : table) {
    auto cidr = ParseCidr(r.cidr);
    SB_CHECK(cidr.has_value());
    out.push_back({*cidr, r.why});
  }
  return out;
}

// A socket bound to the address shows whether it is local, local routes included, without reading the routing table.
bool CanBind(const IpAddress& address) {
  sockaddr_storage ss{};
  socklen_t len = ToSockaddr({address, 0}, ss);
  Fd fd(::socket(ss.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  // A host without that family has no such address. Any other failure tells nothing: treat it as ours, so that the
  // dial is refused.
  if (!fd) return errno != EAFNOSUPPORT;
  return ::bind(fd.get(), reinterpret_cast<sockaddr*>(&ss), len) == 0 || errno != EADDRNOTAVAIL;
}

bool IsInterfaceAddress(const IpAddress& address) {
  ifaddrs* raw = nullptr;
  if (::getifaddrs(&raw) != 0) return true;  // unknown: treat as ours, so that the dial is refused
  std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> list(raw, &::freeifaddrs);
  for (const ifaddrs* i = list.get(); i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr) continue;
    int family = i->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    sockaddr_storage ss{};
    std::memcpy(&ss, i->ifa_addr, family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
    auto own = FromSockaddr(ss);
    if (own && own->address == address) return true;
  }
  return false;
}

}  // namespace

bool IpAddress::is_v4() const {
  return std::equal(kMappedPrefix.begin(), kMappedPrefix.end(), bytes.begin());
}

bool Cidr::Contains(const IpAddress& address) const {
  if (address.is_v4() != base.is_v4()) return false;  // "::/0" means IPv6, not the mapped form of every IPv4
  auto whole = static_cast<size_t>(bits / 8);
  if (!std::equal(base.bytes.begin(), base.bytes.begin() + static_cast<long>(whole), address.bytes.begin()))
    return false;
  int rest = bits % 8;
  if (rest == 0) return true;
  auto mask = static_cast<uint8_t>(0xff << (8 - rest));
  return (base.bytes[whole] & mask) == (address.bytes[whole] & mask);
}

Result<IpAddress> ParseAddress(std::string_view text) {
  std::string z(text);
  in_addr v4{};
  if (::inet_pton(AF_INET, z.c_str(), &v4) == 1 && z.size() == std::strlen(z.c_str())) return FromV4(v4);
  IpAddress a;
  if (::inet_pton(AF_INET6, z.c_str(), a.bytes.data()) == 1 && z.size() == std::strlen(z.c_str())) return a;
  return Fail(Code::kBadRequest, "not an IP address: '" + z + "'");
}

Result<IpAddress> FromRaw(std::string_view bytes) {
  IpAddress a;
  if (bytes.size() == a.bytes.size()) {
    std::memcpy(a.bytes.data(), bytes.data(), bytes.size());
    return a;
  }
  in_addr v4{};
  if (bytes.size() != sizeof(v4)) return Fail(Code::kProtocol, "an address has 4 or 16 bytes");
  std::memcpy(&v4, bytes.data(), sizeof(v4));
  return FromV4(v4);
}

std::string ToRawV4(const IpAddress& address) {
  return {address.bytes.begin() + kMappedPrefix.size(), address.bytes.end()};
}

Result<Endpoint> ParseEndpoint(std::string_view text) {
  size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return Fail(Code::kBadRequest, "expected address:port");
  std::string_view host = text.substr(0, colon), digits = text.substr(colon + 1);
  bool bracketed = host.starts_with('[') && host.ends_with(']');
  if (bracketed) host = host.substr(1, host.size() - 2);
  if (bracketed != host.contains(':')) return Fail(Code::kBadRequest, "IPv6 addresses go in brackets: [::1]:53");
  Endpoint out;
  auto [end, ec] = std::from_chars(digits.data(), digits.data() + digits.size(), out.port);
  if (ec != std::errc() || end != digits.data() + digits.size() || out.port == 0)
    return Fail(Code::kBadRequest, "bad port in '" + std::string(text) + "'");
  SB_TRY(out.address, ParseAddress(host));
  return out;
}

Result<Cidr> ParseCidr(std::string_view text) {
  size_t slash = text.find('/');
  Cidr out;
  SB_TRY(out.base, ParseAddress(text.substr(0, slash)));
  if (slash == std::string_view::npos) return out;
  std::string_view digits = text.substr(slash + 1);
  int offset = out.base.is_v4() ? kMappedBits : 0;
  int bits = -1;
  auto [end, ec] = std::from_chars(digits.data(), digits.data() + digits.size(), bits);
  if (ec != std::errc() || end != digits.data() + digits.size() || bits < 0 || bits + offset > 128)
    return Fail(Code::kBadRequest, "bad prefix length in '" + std::string(text) + "'");
  out.bits = bits + offset;
  IpAddress masked = out.base;
  for (int i = out.bits; i < 128; ++i)
    masked.bytes[static_cast<size_t>(i / 8)] &= static_cast<uint8_t>(~(0x80 >> (i % 8)));
  if (masked != out.base)
    return Fail(Code::kBadRequest, "'" + std::string(text) + "' has bits set after its prefix; meant " +
                                       ToString(masked) + "/" + std::string(digits) + "?");
  return out;
}

std::string ToString(const IpAddress& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address.is_v4()) {
    ::inet_ntop(AF_INET, address.bytes.data() + kMappedPrefix.size(), text.data(), text.size());
  } else {
    ::inet_ntop(AF_INET6, address.bytes.data(), text.data(), text.size());
  }
  return text.data();
}

std::string ToString(const Endpoint& endpoint) {
  std::string host = ToString(endpoint.address);
  if (!endpoint.address.is_v4()) host = "[" + host + "]";
  return host + ":" + std::to_string(endpoint.port);
}

socklen_t ToSockaddr(const Endpoint& endpoint, sockaddr_storage& out) {
  out = {};
  if (endpoint.address.is_v4()) {
    auto* v4 = reinterpret_cast<sockaddr_in*>(&out);
    v4->sin_family = AF_INET;
    v4->sin_port = htons(endpoint.port);
    std::memcpy(&v4->sin_addr, endpoint.address.bytes.data() + kMappedPrefix.size(), sizeof(v4->sin_addr));
    return sizeof(sockaddr_in);
  }
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&out);
  v6->sin6_family = AF_INET6;
  v6->sin6_port = htons(endpoint.port);
  std::memcpy(&v6->sin6_addr, endpoint.address.bytes.data(), endpoint.address.bytes.size());
  return sizeof(sockaddr_in6);
}

Result<Endpoint> FromSockaddr(const sockaddr_storage& address) {
  Endpoint out;
  if (address.ss_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(&address);
    out.address = FromV4(v4->sin_addr);
    out.port = ntohs(v4->sin_port);
    return out;
  }
  if (address.ss_family == AF_INET6) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&address);
    std::memcpy(out.address.bytes.data(), &v6->sin6_addr, out.address.bytes.size());
    out.port = ntohs(v6->sin6_port);
    return out;
  }
  return Fail(Code::kProtocol, "not an internet address");
}

bool IsHostAddress(const IpAddress& address) {
  if (!CanBind(address)) return false;
  // With net.ipv4.ip_nonlocal_bind every bind succeeds; an address that no host owns unmasks that.
  IpAddress nobody = *ParseAddress(address.is_v4() ? "192.0.2.255" : "2001:db8::ffff");
  return CanBind(nobody) ? IsInterfaceAddress(address) : true;
}

bool OperatorAllows(const std::array<uint8_t, 16>& v6_or_mapped, const EgressConfig& config) {
  return std::ranges::any_of(config.allow_addresses, [&](const std::string& text) {
    auto cidr = ParseCidr(text);
    return cidr && cidr->Contains(IpAddress{v6_or_mapped});
  });
}

std::string AddressDenied(const std::array<uint8_t, 16>& v6_or_mapped, const EgressConfig& config) {
  static const std::vector<ReservedRange> kV4 = ParseTable(kReservedV4);
  static const std::vector<ReservedRange> kV6 = ParseTable(kReservedV6);
  static const Cidr kGlobal = *ParseCidr(kGlobalUnicastV6);
  IpAddress address{v6_or_mapped};
  if (OperatorAllows(v6_or_mapped, config)) return {};
  for (const ReservedRange& r : address.is_v4() ? kV4 : kV6)
    if (r.cidr.Contains(address)) return std::string(r.why);
  if (!address.is_v4() && !kGlobal.Contains(address)) return "not global unicast";
  if (IsHostAddress(address)) return "the host's own address";
  return {};
}

}  // namespace sandbar::egress
