// Numbers that the spawner and its clients agree on: versions, the ids of engines, and how much fits one message.
// Constants, for any thread.
//
//   if (!SpawnerVersions().Has(hello.version)) … kUnsupported …
#pragma once

#include <cstddef>
#include <cstdint>

#include "protocol/versions.h"

namespace sandbar::protocol {

// Version 7: the spawner and the server refuse a message with further fields.
// Version 8: they ignore the fields that they do not know (protocol/codec.h).
inline constexpr uint32_t kOldestSpawnerVersion = 7;
VersionRange SpawnerVersions();
inline constexpr size_t kMaxSpawnerMessage = 64 << 10;
inline constexpr size_t kMaxLayers = 64;
inline constexpr size_t kMaxSnapshotChain = 64;
inline constexpr size_t kSnapshotsPerPage = 500;
inline constexpr size_t kMaxMounts = 4;
inline constexpr size_t kMaxEngines = 8;

// How a machine is kept from the host. The numbers are for the wire; classes are in EngineEntry.
inline constexpr uint8_t kNamespacesEngine = 1, kGvisorEngine = 2, kMicrovmEngine = 3;

}  // namespace sandbar::protocol
