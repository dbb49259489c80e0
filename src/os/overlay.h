// The root filesystem of a machine: read-only layers and one writable directory, all id-mapped, as one overlay.
// The options are part of the on-disk format: redirect_dir=on, metacopy=off, index=off, xino=auto, volatile.
// Used by the spawner's only thread (it changes its own fsuid for a moment).
//
//   SB_TRY(Fd root, MountOverlay({.layers = fds, .writable = dir, .owner = base, .scratch = "/run/x/m"}));
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"

namespace sandbar::os {

struct OverlaySpec {
  std::vector<int> layers;  // detached id-mapped mounts, topmost first
  int writable = -1;        // detached id-mapped mount that holds upper/ and work/
  uint32_t owner = 0;       // host id of the machine's root
  // An empty directory in the private mount namespace, used by kernels that take layers only by path.
  std::string scratch;
  bool force_paths = false;
};

// A detached overlay, nodev, checked to be writable. Kernels before 6.13 need the layers at paths: tried second.
Result<Fd> MountOverlay(const OverlaySpec& spec);

}  // namespace sandbar::os
