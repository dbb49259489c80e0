// The few file operations that the cgroup code needs, as a seam: tests put a recorded tree behind it, because mkdir in
// a plain directory does not make the kernel's control files appear. Paths are absolute, made of checked names only.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/result.h"

namespace sandbar::os {

class CgroupFs {
 public:
  virtual ~CgroupFs();
  virtual Result<> MakeDir(const std::string& path);  // kConflict when it exists
  virtual Result<> RemoveDir(const std::string& path);
  virtual Result<> Write(const std::string& path, std::string_view text);
  virtual Result<std::string> Read(const std::string& path) const;
  virtual Result<> AttachDevices(int dir, bool kvm);                   // version 2: see AttachDeviceFilter
  virtual bool IsDelegated(const std::string& path) const;             // by systemd, to the unit that lives in it
  virtual Result<> GiveAway(const std::string& path, uint32_t owner);  // version 2: the group and who is in it
  Result<> EnsureDir(const std::string& path);
  Result<Fd> OpenDir(const std::string& path) const;
  Result<Fd> OpenForJoin(const std::string& path) const;
  bool Exists(const std::string& path) const;
  // With every group in it, which a guest may have made: version 2 limits how many and how deep.
  Result<> RemoveTree(const std::string& path);
  std::vector<std::string> SubDirs(const std::string& path) const;
  // The number after `key` in a "key value" file, or in a file that holds only a number (empty key). "max" is
  // UINT64_MAX.
  Result<uint64_t> ReadNumber(const std::string& path, std::string_view key = {}) const;
};

// Where the host mounts its controllers. Parsed from mountinfo; version 1 lists one directory per mount.
struct CgroupMounts {
  struct V1 {
    std::string dir;
    std::vector<std::string> controllers;
  };
  std::vector<V1> v1;
  std::string v2;  // empty: none
  // The caller's own group in the version 2 tree ("/" at the root), from /proc/self/cgroup.
  std::string self_v2 = "/";
};

CgroupMounts ParseCgroupMounts(std::string_view mountinfo, std::string_view self_cgroup);

}  // namespace sandbar::os
