// The root filesystem of a machine: read-only layers and one writable directory, all id-mapped, as one overlay.
// The options are part of the on-disk format: redirect_dir=on, metacopy=off, index=off, xino=auto, volatile.
// Drives are overlays too: a guest never holds a file of the store itself, and machines that see the same drive share
// no inode (a FIFO or a lock of one is not the other's).
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
  int writable = -1;        // detached id-mapped mount that holds upper/ and work/; -1: read-only (at least two layers)
  bool durable = false;     // fsync reaches the disk; otherwise it does nothing
  uint32_t owner = 0;       // host id of the machine's root
  // An empty directory in the private mount namespace, used by kernels that take layers only by path.
  std::string scratch;
  bool force_paths = false;
};

// A detached overlay, nodev, checked to be writable. Kernels before 6.13 need the layers at paths: tried second.
Result<Fd> MountOverlay(const OverlaySpec& spec);

// Makes what is missing of an absolute path in an overlay as directories of the machine's root, mode 0755. The tree is
// a guest's: nothing of it is followed, and whatever is not a directory is kBadRequest. Nobody may run in it yet.
// `upper`: the last directory is in the writable layer afterwards, even if a layer below has it too.
Result<> MakePathInside(int root, const std::string& path, uint32_t owner, bool upper = false);

}  // namespace sandbar::os
