// The file <data>/store.img with the btrfs filesystem that machines, snapshots and drives are on. It is mounted through
// a loop device in the private mount namespace only, so the mount is gone with the process. Used once, at start.
//
//   SB_TRY(StoreMount store, MountStoreImage(options));   // makes or grows the image when that is asked for
#pragma once

#include "base/fd.h"
#include "base/result.h"
#include "os/btrfs.h"
#include "spawner/disk/disk.h"

namespace sandbar::spawner {

struct StoreMount {
  Fd root;   // the root directory of the filesystem
  Fd image;  // the file
  os::QuotaMode quota = os::QuotaMode::kSimple;
};

// Errors are for the operator: the disk is too full, or the image is not a file of root's.
Result<StoreMount> MountStoreImage(const DiskOptions& options);

}  // namespace sandbar::spawner
