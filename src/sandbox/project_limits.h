// The limits of each project on this server. A project is any name that a token may use, so the server's own limits
// bound all projects together besides. Plain values; daemon/ fills them from its config file.
#pragma once

#include <cstdint>
#include <string>

#include "engine/values.h"

namespace sandbar::sandbox {

struct Core;

struct ProjectLimits {
  uint64_t disk_bytes = 0;          // of the store: machines, snapshots and drives; 0: half of the store
  uint64_t log_bytes = 1ULL << 30;  // commands' output on the host
};

// The project as the engine knows it: a number that no other project gets and that hides its name, and its disk limit.
// The same after every restart.
engine::Owner DiskOwner(const Core& core, const std::string& team, const std::string& project);

}  // namespace sandbar::sandbox
