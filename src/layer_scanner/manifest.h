// A layer's manifest: what every entry is and the digest of its content, one line each. Written once when the layer is
// new; a later scan of the layer must give the same lines. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "layer_scanner/tree.h"

namespace sandbar::layer_scanner {

inline constexpr size_t kShownDifferences = 20;

struct Report {
  uint64_t bytes = 0, files = 0;
  std::string digest;              // of the manifest
  uint64_t differences = 0;        // of a check: between layer and manifest
  std::vector<std::string> first;  // the first of them: "changed /etc/passwd"
};

// Everything is on disk when this returns, the layer included.
Result<Report> WriteManifest(int layer, int out, const ScanLimits& limits);
// Reads all of the layer. That there are differences is no error.
Result<Report> CheckManifest(int layer, int manifest, const ScanLimits& limits);

}  // namespace sandbar::layer_scanner
