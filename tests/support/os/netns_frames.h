// Ethernet frames as a guest's root would forge them: every field can be wrong, checksums are right unless said.
//
//   std::string frame = Ethernet(kLinkHostMac, kLinkGuestMac, 0x0800, Ipv4({.proto = 17}, Udp(5353, 53, "query")));
#pragma once

#include <netinet/in.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "os/netns.h"

namespace sandbar::os {

using MacBytes = std::array<uint8_t, 6>;
inline constexpr MacBytes kBroadcastMac = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
inline constexpr MacBytes kStrangerMac = {0x02, 0x53, 0x42, 0x00, 0x00, 0x77};

inline std::string Be16(uint32_t v) {
  return {static_cast<char>(v >> 8), static_cast<char>(v)};
}
inline std::string Be32(uint32_t v) {
  return Be16(v >> 16) + Be16(v & 0xffff);
}
inline std::string Bytes(const MacBytes& mac) {
  return {reinterpret_cast<const char*>(mac.data()), mac.size()};
}

// The Internet checksum.
inline uint32_t Sum(std::string_view data) {
  uint32_t sum = 0;
  for (size_t i = 0; i < data.size(); ++i) sum += static_cast<uint8_t>(data[i]) << (i % 2 == 0 ? 8 : 0);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  return ~sum & 0xffff;
}

inline std::string Ethernet(const MacBytes& to, const MacBytes& from, uint32_t type, std::string_view payload) {
  return Bytes(to) + Bytes(from) + Be16(type) + std::string(payload);
}

struct IpFields {
  uint32_t from = kLinkGuestAddress;
  uint32_t to = 0xCB007107;  // 203.0.113.7
  uint8_t proto = IPPROTO_TCP;
  uint32_t fragment = 0x4000;  // don't fragment
  std::string options;         // a multiple of four bytes
};

inline std::string Ipv4(const IpFields& f, std::string_view payload) {
  const size_t head = 20 + f.options.size();
  std::string h = {static_cast<char>(0x40 + head / 4), 0};
  h += Be16(static_cast<uint32_t>(head + payload.size())) + Be16(7) + Be16(f.fragment);
  h += {64, static_cast<char>(f.proto)};
  const std::string rest = Be32(f.from) + Be32(f.to) + f.options;
  return h + Be16(Sum(h + std::string(2, 0) + rest)) + rest + std::string(payload);
}

// A whole IPv4 packet with the checksum in place at `at` of the segment.
inline std::string Sealed(const IpFields& f, std::string segment, size_t at) {
  const std::string pseudo = Be32(f.from) + Be32(f.to) + std::string(1, 0) + static_cast<char>(f.proto) +
                             Be16(static_cast<uint32_t>(segment.size()));
  segment.replace(at, 2, Be16(Sum(pseudo + segment)));
  return Ipv4(f, segment);
}

inline constexpr uint8_t kSyn = 0x02;
inline constexpr uint8_t kAck = 0x10;

inline std::string TcpPacket(const IpFields& f, uint32_t from, uint32_t to, uint8_t flags, std::string_view data = {}) {
  std::string s = Be16(from) + Be16(to) + Be32(1000) + Be32(flags & kAck ? 2000 : 0);
  s += {0x50, static_cast<char>(flags)};
  s += Be16(65535) + std::string(4, 0) + std::string(data);
  return Sealed(f, s, 16);
}

inline std::string UdpPacket(IpFields f, uint32_t from, uint32_t to, std::string_view data) {
  f.proto = IPPROTO_UDP;
  const std::string s = Be16(from) + Be16(to) + Be16(static_cast<uint32_t>(8 + data.size())) + Be16(0);
  return Sealed(f, s + std::string(data), 6);
}

inline std::string Icmp(IpFields f, uint8_t type, std::string_view data) {
  f.proto = IPPROTO_ICMP;
  std::string s = {static_cast<char>(type), 0};
  s += Be16(0) + Be32(1) + std::string(data);
  s.replace(2, 2, Be16(Sum(s)));
  return Ipv4(f, s);
}

inline std::string Arp(uint32_t operation, const MacBytes& mac, uint32_t from, uint32_t asked) {
  return Be16(1) + Be16(0x0800) + std::string("\x06\x04", 2) + Be16(operation) + Bytes(mac) + Be32(from) +
         std::string(6, 0) + Be32(asked);
}

}  // namespace sandbar::os
