// Links, addresses, routes and neighbours of the calling thread's network namespace, through rtnetlink. Addresses are
// in host byte order. Only for the netns_*.cc files; any thread.
//
//   SB_TRYV(AddVeth({"link0", mac}, {"eth0", other}, inner.get()));
//   SB_TRY(unsigned device, DeviceIndex("link0"));
//   SB_TRYV(AddAddress(device, 0xC6336401, 30));
//   SB_TRYV(LinkUp(device));
#pragma once

#include <array>
#include <cstdint>

#include "base/result.h"

namespace sandbar::os {

using Mac = std::array<uint8_t, 6>;

struct VethEnd {
  const char* name;
  Mac mac;
};

inline constexpr unsigned kLoopbackIndex = 1;  // in every network namespace

Result<unsigned> DeviceIndex(const char* name);
// The other end appears in the namespace `netns`. Both are down.
Result<> AddVeth(const VethEnd& here, const VethEnd& there, int netns);
Result<> SetMac(unsigned device, const Mac& mac);
Result<> LinkUp(unsigned device);
Result<> AddAddress(unsigned device, uint32_t address, uint8_t prefix);
// "local 0.0.0.0/0 dev lo": every IPv4 address is the namespace's own, so a packet to any of them can be redirected.
Result<> AddAnyAddressRoute();
Result<> AddDefaultRoute(unsigned device, uint32_t gateway);
// For good: no ARP message changes it.
Result<> AddNeighbour(unsigned device, uint32_t address, const Mac& mac);

}  // namespace sandbar::os
