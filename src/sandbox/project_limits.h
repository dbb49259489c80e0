// What one project may have of this server, whatever it is called and however many sandboxes it makes. A project is any
// name that a token may use, so all projects together are bounded by the server's own limits besides. Plain values;
// daemon/ fills them from its config file.
#pragma once

#include <cstdint>
#include <string>

#include "engine/engine.h"

namespace sandbar::sandbox {

struct Core;

struct ProjectLimits {
  uint64_t disk_bytes = 0;          // of the store: machines, snapshots and drives; 0: half of the store
  uint64_t log_bytes = 1ULL << 30;  // commands' output on the host
};

// The project as the engine knows it: a number that says nothing about its name and that no other project gets, and
// what it may have on disk. The same after every restart.
engine::Owner DiskOwner(const Core& core, const std::string& team, const std::string& project);

}  // namespace sandbar::sandbox
