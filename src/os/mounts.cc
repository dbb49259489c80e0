#include "os/mounts.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <array>
#include <cstdio>

namespace sandbar::os {

Result<Fd> CloneTree(int dirfd, const std::string& path, bool recursive) {
  unsigned flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC;
  if (recursive) flags |= AT_RECURSIVE;
  if (path.empty()) flags |= AT_EMPTY_PATH;
  int fd = ::open_tree(dirfd, path.c_str(), flags);
  if (fd < 0) return FailErrno("open_tree " + path);
  return Fd(fd);
}

Result<> SetMountAttributes(int mount, uint64_t set, uint64_t clear) {
  mount_attr attr{};
  attr.attr_set = set;
  attr.attr_clr = clear;
  if (::mount_setattr(mount, "", AT_EMPTY_PATH, &attr, sizeof attr) != 0) return FailErrno("mount_setattr");
  return {};
}

Result<> MapIds(int mount, int userns) {
  mount_attr attr{};
  attr.attr_set = MOUNT_ATTR_IDMAP;
  attr.userns_fd = static_cast<uint64_t>(userns);
  if (::mount_setattr(mount, "", AT_EMPTY_PATH, &attr, sizeof attr) != 0) return FailErrno("id-mapped mount");
  return {};
}

Result<Fd> NewMount(const std::string& type, std::span<const MountOption> options, uint64_t attributes) {
  Fd context(::fsopen(type.c_str(), FSOPEN_CLOEXEC));
  if (!context) return FailErrno("fsopen " + type);
  auto failed = [&](const std::string& what) {
    int err = errno;
    std::string why = MountContextLog(context.get());
    return FailErrno(type + " " + what + (why.empty() ? "" : " (" + why + ")"), err);
  };
  for (const auto& o : options) {
    int rc = o.flag ? ::fsconfig(context.get(), FSCONFIG_SET_FLAG, o.key.c_str(), nullptr, 0)
                    : ::fsconfig(context.get(), FSCONFIG_SET_STRING, o.key.c_str(), o.value.c_str(), 0);
    if (rc != 0) return failed("option " + o.key);
  }
  if (::fsconfig(context.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) != 0) return failed("mount");
  Fd mount(::fsmount(context.get(), FSMOUNT_CLOEXEC, static_cast<unsigned>(attributes)));
  if (!mount) return failed("fsmount");
  return mount;
}

Result<> Attach(int mount, int dirfd, const std::string& path) {
  unsigned flags = MOVE_MOUNT_F_EMPTY_PATH | (path.empty() ? MOVE_MOUNT_T_EMPTY_PATH : 0);
  if (::move_mount(mount, "", dirfd, path.c_str(), flags) != 0) return FailErrno("move_mount " + path);
  return {};
}

Result<> Unmount(const std::string& path) {
  if (::umount2(path.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW) != 0 && errno != EINVAL && errno != ENOENT)
    return FailErrno("umount " + path);
  return {};
}

Result<> EnterPrivateMountNamespace() {
  if (::unshare(CLONE_NEWNS) != 0) return FailErrno("unshare mount namespace");
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return FailErrno("make mounts private");
  return {};
}

bool KernelAtLeast(int major, int minor) {
  utsname u{};
  int have_major = 0, have_minor = 0;
  if (::uname(&u) != 0 || std::sscanf(u.release, "%d.%d", &have_major, &have_minor) != 2) return false;
  return have_major > major || (have_major == major && have_minor >= minor);
}

bool FilesystemAvailable(const std::string& type) {
  // Opening a context makes the kernel load the module, which reading /proc/filesystems would not.
  Fd context(::fsopen(type.c_str(), FSOPEN_CLOEXEC));
  return static_cast<bool>(context);
}

std::string MountContextLog(int context) {
  std::array<char, 512> buf{};
  std::string out;
  for (;;) {
    ssize_t n = ::read(context, buf.data(), buf.size());
    if (n <= 0) break;
    if (!out.empty()) out += "; ";
    out.append(buf.data(), static_cast<size_t>(n));
    while (!out.empty() && out.back() == '\n') out.pop_back();
  }
  return out;
}

}  // namespace sandbar::os
