// A layer's manifest: what every entry is and the digest of its content, one line each. Written once when the layer is
// new; a later walk of the layer must give the same lines. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "walker/tree.h"

namespace sandbar::walker {

inline constexpr size_t kShownDifferences = 20;

struct Report {
  uint64_t bytes = 0, files = 0;
  std::string digest;              // of the manifest
  uint64_t differences = 0;        // of a check: between layer and manifest
  std::vector<std::string> first;  // the first of them: "changed /etc/passwd"
};

// Everything is on disk when this returns, the layer included.
Result<Report> WriteManifest(int layer, int out, const WalkLimits& limits);
// Reads all of the layer. That there are differences is no error.
Result<Report> CheckManifest(int layer, int manifest, const WalkLimits& limits);

}  // namespace sandbar::walker
