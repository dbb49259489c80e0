// Which versions of a protocol a program speaks. Programs of different builds meet: a new server finds machines and a
// spawner of the build before, and memory snapshots hold agents of any age. Both sides use the highest version that
// both speak.
//
// What is new in a version is a Feature, a constant beside the frames that it brings (guest_frames.h). Its frames and
// fields are sent only where the other side has it:
//
//   inline constexpr Feature kFanSpeed{4, "set the speed of the fan"};
//   SB_CO_TRYV(link->Require(protocol::kFanSpeed));   // kConflict: the machine's agent is too old
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

namespace sandbar::protocol {

struct VersionRange {
  uint32_t oldest = 0, newest = 0;

  bool Has(uint32_t version) const { return oldest <= version && version <= newest; }
  bool operator==(const VersionRange&) const = default;
};

// 0: there is no version that both speak.
inline uint32_t HighestCommon(VersionRange a, VersionRange b) {
  const uint32_t common = std::min(a.newest, b.newest);
  return a.Has(common) && b.Has(common) ? common : 0;
}

// "version 1", "versions 1 to 3".
inline std::string Describe(VersionRange range) {
  if (range.oldest == range.newest) return "version " + std::to_string(range.oldest);
  return "versions " + std::to_string(range.oldest) + " to " + std::to_string(range.newest);
}

struct Feature {
  uint32_t since = 0;          // version
  const char* what = nullptr;  // for a message: "the agent cannot <what>"
};

}  // namespace sandbar::protocol
