// The mount API by fds: detached mounts are made, changed and only then attached, so nothing half-done is ever visible
// and nothing needs a path. Used by the spawner's only thread.
//
//   SB_TRY(Fd tree, CloneTree(AT_FDCWD, "/layers/base"));       // a detached copy: dissolves when the fd closes
//   SB_TRYV(MapIds(tree.get(), userns));                        // owners on disk are 0-based, inside they are too
//   SB_TRYV(Attach(tree.get(), root.get(), "mnt"));             // from now on it lives in the mount namespace
#pragma once

#include <sys/mount.h>

#include <cstdint>
#include <span>
#include <string>

#include "base/fd.h"
#include "base/result.h"

namespace sandbar::os {

struct MountOption {
  std::string key;
  std::string value;
  bool flag = false;  // true: the key alone
};

Result<Fd> CloneTree(int dirfd, const std::string& path, bool recursive = false);
// MOUNT_ATTR_* bits.
Result<> SetMountAttributes(int mount, uint64_t set, uint64_t clear = 0);
Result<> MapIds(int mount, int userns);
// A new, detached filesystem; what the kernel says about a refusal is in the error.
Result<Fd> NewMount(const std::string& type, std::span<const MountOption> options, uint64_t attributes);
Result<> Attach(int mount, int dirfd, const std::string& path);
// Detaches lazily; fine when nothing is mounted there.
Result<> Unmount(const std::string& path);

// Gives the process its own mount namespace in which nothing propagates to or from the host.
Result<> EnterPrivateMountNamespace();

bool KernelAtLeast(int major, int minor);
// True when /proc/filesystems lists it or the module can be loaded by using it.
bool FilesystemAvailable(const std::string& type);

// The message log of an fsopen() context, e.g. "overlay: upperdir is in-use".
std::string MountContextLog(int context);

}  // namespace sandbar::os
