// A sandbox with the session that a call is about: the answer of most calls. Plain values.
#pragma once

#include <optional>

#include "engine/values.h"
#include "store/records.h"

namespace sandbar::sandbox {

struct SandboxView {
  store::Sandbox sandbox;
  store::Session session;
  bool resumed = false;
  std::optional<store::Snapshot> snapshot;                // of a stop: the files that the session left
  std::optional<engine::MemorySnapshot> memory_snapshot;  // of a live fork: the time and memory that the copy took
};

}  // namespace sandbar::sandbox
