// Loop devices: a file as a block device, gone by itself when its last user is. Used by the spawner's only thread.
#pragma once

#include <string>

#include "base/fd.h"
#include "base/result.h"

namespace sandbar::os {

struct LoopDevice {
  std::string path;  // "/dev/loop3"
  Fd fd;             // keep open until the filesystem is mounted: the device clears itself when unused
};

Result<LoopDevice> AttachLoop(int file, bool read_only);
// The device that already has this very file behind it: a filesystem that dying machines still hold must be mounted
// through the same device again, or the kernel sees two filesystems with one id.
Result<LoopDevice> FindLoop(int file);

}  // namespace sandbar::os
