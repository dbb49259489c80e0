#include "os/btrfs.h"

#include <endian.h>
#include <fcntl.h>
#include <linux/btrfs.h>
#include <linux/btrfs_tree.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "os/openat.h"

namespace sandbar::os {
namespace {

constexpr uint64_t kEnableSimpleQuota = 4;  // BTRFS_QUOTA_CTL_ENABLE_SIMPLE_QUOTA, newer than Debian 12's headers

Result<btrfs_ioctl_vol_args> Name(const std::string& name) {
  btrfs_ioctl_vol_args args{};
  if (name.empty() || name.size() > 200 || name.find('/') != std::string::npos)
    return Fail(Code::kBadRequest, "bad subvolume name");
  std::memcpy(args.name, name.data(), name.size());
  return args;
}

}  // namespace

Result<QuotaMode> EnableQuota(int root, bool force_full) {
  btrfs_ioctl_quota_ctl_args args{};
  args.cmd = kEnableSimpleQuota;
  if (!force_full) {
    if (::ioctl(root, BTRFS_IOC_QUOTA_CTL, &args) == 0) return QuotaMode::kSimple;
    if (errno == EEXIST) return QuotaMode::kSimple;
  }
  args = {};
  args.cmd = BTRFS_QUOTA_CTL_ENABLE;
  if (::ioctl(root, BTRFS_IOC_QUOTA_CTL, &args) != 0 && errno != EEXIST) return FailErrno("enable btrfs quotas");
  return QuotaMode::kFull;
}

Result<uint64_t> CreateSubvolume(int parent, const std::string& name) {
  SB_TRY(auto args, Name(name));
  if (::ioctl(parent, BTRFS_IOC_SUBVOL_CREATE, &args) != 0) return FailErrno("create subvolume " + name);
  SB_TRY(Fd fd, OpenInside(parent, name, O_RDONLY | O_DIRECTORY));
  return SubvolumeId(fd.get());
}

Result<uint64_t> SubvolumeId(int subvolume) {
  btrfs_ioctl_ino_lookup_args args{};
  args.objectid = BTRFS_FIRST_FREE_OBJECTID;
  if (::ioctl(subvolume, BTRFS_IOC_INO_LOOKUP, &args) != 0) return FailErrno("subvolume id");
  return args.treeid;
}

Result<> DestroySubvolume(int parent, const std::string& name) {
  SB_TRY(auto args, Name(name));
  if (::ioctl(parent, BTRFS_IOC_SNAP_DESTROY, &args) != 0 && errno != ENOENT)
    return FailErrno("destroy subvolume " + name);
  return {};
}

Result<bool> IsSubvolumeReadOnly(int subvolume) {
  uint64_t flags = 0;
  if (::ioctl(subvolume, BTRFS_IOC_SUBVOL_GETFLAGS, &flags) != 0) return FailErrno("subvolume flags");
  return (flags & BTRFS_SUBVOL_RDONLY) != 0;
}

Result<> MakeSubvolumeReadOnly(int subvolume) {
  uint64_t flags = 0;
  if (::ioctl(subvolume, BTRFS_IOC_SUBVOL_GETFLAGS, &flags) != 0) return FailErrno("subvolume flags");
  flags |= BTRFS_SUBVOL_RDONLY;
  if (::ioctl(subvolume, BTRFS_IOC_SUBVOL_SETFLAGS, &flags) != 0) return FailErrno("make a subvolume read-only");
  return {};
}

Result<> SnapshotSubvolume(int subvolume, int parent, const std::string& name, bool writable) {
  SB_TRYV(Name(name));
  btrfs_ioctl_vol_args_v2 args{};
  args.fd = subvolume;
  if (!writable) args.flags = BTRFS_SUBVOL_RDONLY;
  std::memcpy(args.name, name.data(), name.size());
  if (::ioctl(parent, BTRFS_IOC_SNAP_CREATE_V2, &args) == 0) return {};
  if (errno == EEXIST) return Fail(Code::kConflict, "subvolume " + name + " exists already");
  return FailErrno("snapshot subvolume " + name);
}

Result<> SetSubvolumeLimit(int root, uint64_t id, uint64_t bytes) {
  btrfs_ioctl_qgroup_limit_args args{};
  args.qgroupid = id;
  args.lim.flags = BTRFS_QGROUP_LIMIT_MAX_RFER;
  args.lim.max_rfer = bytes == 0 ? ~0ULL : bytes;  // all ones clears a limit
  if (::ioctl(root, BTRFS_IOC_QGROUP_LIMIT, &args) != 0) return FailErrno("set disk limit");
  return {};
}

Result<uint64_t> SubvolumeUsage(int root, uint64_t id) {
  btrfs_ioctl_search_args args{};
  args.key.tree_id = BTRFS_QUOTA_TREE_OBJECTID;
  args.key.min_type = args.key.max_type = BTRFS_QGROUP_INFO_KEY;
  args.key.min_offset = args.key.max_offset = id;
  args.key.max_transid = ~0ULL;
  args.key.nr_items = 1;
  if (::ioctl(root, BTRFS_IOC_TREE_SEARCH, &args) != 0) return FailErrno("read disk usage");
  if (args.key.nr_items == 0) return 0;
  btrfs_ioctl_search_header header{};
  btrfs_qgroup_info_item item{};
  std::memcpy(&header, args.buf, sizeof header);
  if (header.len < sizeof item) return Fail(Code::kInternal, "unexpected quota item");
  std::memcpy(&item, args.buf + sizeof header, sizeof item);
  return le64toh(item.rfer);
}

Result<> RemoveQuotaGroup(int root, uint64_t id) {
  btrfs_ioctl_qgroup_create_args args{};
  args.create = 0;
  args.qgroupid = id;
  if (::ioctl(root, BTRFS_IOC_QGROUP_CREATE, &args) == 0 || errno == ENOENT) return {};
  if (errno == EBUSY) return Fail(Code::kConflict, "the subvolume is still being freed");
  return FailErrno("remove quota group");
}

Result<> GrowToDevice(int root) {
  btrfs_ioctl_vol_args args{};
  std::strcpy(args.name, "max");
  if (::ioctl(root, BTRFS_IOC_RESIZE, &args) != 0) return FailErrno("grow the store");
  return {};
}

}  // namespace sandbar::os
