#include "os/btrfs.h"

#include <endian.h>
#include <fcntl.h>
#include <linux/btrfs.h>
#include <linux/btrfs_tree.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <fstream>
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

// The keys of a tree from `from` to `to`, all of one type, each with the bytes of its item.
template <class F>
Result<> Search(int root, uint64_t tree, uint32_t type, std::pair<uint64_t, uint64_t> objects,
                std::pair<uint64_t, uint64_t> offsets, F each) {
  btrfs_ioctl_search_args args{};
  args.key.tree_id = tree;
  args.key.min_type = args.key.max_type = type;
  args.key.min_objectid = objects.first;
  args.key.max_objectid = objects.second;
  args.key.min_offset = offsets.first;
  args.key.max_offset = offsets.second;
  args.key.max_transid = ~0ULL;
  for (;;) {
    args.key.nr_items = 4096;
    if (::ioctl(root, BTRFS_IOC_TREE_SEARCH, &args) != 0) return FailErrno("read a tree of the store");
    if (args.key.nr_items == 0) return {};
    size_t at = 0;
    btrfs_ioctl_search_header header{};
    for (uint32_t i = 0; i < args.key.nr_items; ++i) {
      std::memcpy(&header, args.buf + at, sizeof header);
      at += sizeof header;
      if (header.type == type && header.offset >= offsets.first && header.offset <= offsets.second)
        each(header, std::string_view(args.buf + at, header.len));
      at += header.len;
    }
    // The next key in the order of (object, type, offset).
    args.key.min_objectid = header.objectid;
    args.key.min_offset = header.offset + 1;
    if (args.key.min_offset == 0 && ++args.key.min_objectid == 0) return {};
    if (args.key.min_objectid > args.key.max_objectid) return {};
  }
}

Result<> Relate(int root, uint64_t member, uint64_t group, bool join) {
  btrfs_ioctl_qgroup_assign_args args{};
  args.assign = join ? 1 : 0;
  args.src = member;
  args.dst = group;
  // More than zero: done, but full quotas have to be counted anew.
  if (::ioctl(root, BTRFS_IOC_QGROUP_ASSIGN, &args) >= 0 || errno == (join ? EEXIST : ENOENT)) return {};
  return FailErrno(join ? "join a quota group" : "leave a quota group");
}

}  // namespace

Result<std::string> BtrfsSysPath(int root) {
  btrfs_ioctl_fs_info_args info{};
  if (::ioctl(root, BTRFS_IOC_FS_INFO, &info) != 0) return FailErrno("btrfs information");
  static constexpr char kHex[] = "0123456789abcdef";
  std::string path = "/sys/fs/btrfs/";
  for (size_t i = 0; i < sizeof info.fsid; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) path += '-';
    path += kHex[info.fsid[i] >> 4];
    path += kHex[info.fsid[i] & 15];
  }
  return path;
}

Result<QuotaMode> EnableQuota(int root, bool force_full) {
  btrfs_ioctl_quota_ctl_args args{};
  args.cmd = kEnableSimpleQuota;
  bool on = !force_full && (::ioctl(root, BTRFS_IOC_QUOTA_CTL, &args) == 0 || errno == EEXIST);
  if (!on) {
    args = {};
    args.cmd = BTRFS_QUOTA_CTL_ENABLE;
    if (::ioctl(root, BTRFS_IOC_QUOTA_CTL, &args) != 0 && errno != EEXIST) return FailErrno("enable btrfs quotas");
  }
  // The kernel answers the same for one that was enabled before, in whichever mode. One that cannot say has one only.
  SB_TRY(std::string path, BtrfsSysPath(root));
  std::ifstream file(path + "/qgroups/mode");
  std::string mode;
  file >> mode;
  return mode == "squota" ? QuotaMode::kSimple : QuotaMode::kFull;
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

Result<> SnapshotSubvolume(int subvolume, int parent, const std::string& name, bool writable, uint64_t group) {
  SB_TRYV(Name(name));
  // A btrfs_qgroup_inherit with one group behind it.
  std::array<uint64_t, sizeof(btrfs_qgroup_inherit) / sizeof(uint64_t) + 1> inherit{};
  btrfs_ioctl_vol_args_v2 args{};
  if (group != 0) {
    inherit[offsetof(btrfs_qgroup_inherit, num_qgroups) / sizeof(uint64_t)] = 1;
    inherit.back() = group;
    args.flags |= BTRFS_SUBVOL_QGROUP_INHERIT;
    args.size = sizeof inherit;
    args.qgroup_inherit = reinterpret_cast<btrfs_qgroup_inherit*>(inherit.data());
  }
  args.fd = subvolume;
  if (!writable) args.flags |= BTRFS_SUBVOL_RDONLY;
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

Result<> CreateQuotaGroup(int root, uint64_t group) {
  btrfs_ioctl_qgroup_create_args args{};
  args.create = 1;
  args.qgroupid = group;
  if (::ioctl(root, BTRFS_IOC_QGROUP_CREATE, &args) == 0 || errno == EEXIST) return {};
  return FailErrno("create quota group");
}

Result<> JoinQuotaGroup(int root, uint64_t member, uint64_t group) {
  return Relate(root, member, group, true);
}

Result<> LeaveQuotaGroup(int root, uint64_t member, uint64_t group) {
  return Relate(root, member, group, false);
}

Result<std::vector<uint64_t>> QuotaGroupsAbove(int root, uint64_t group) {
  std::vector<uint64_t> above;
  // Each relation is there twice, once from either side.
  auto add = [&](const btrfs_ioctl_search_header& h, std::string_view) {
    if (GroupLevel(h.offset) > GroupLevel(group)) above.push_back(h.offset);
  };
  SB_TRYV(Search(root, BTRFS_QUOTA_TREE_OBJECTID, BTRFS_QGROUP_RELATION_KEY, {group, group}, {0, ~0ULL}, add));
  return above;
}

Result<std::vector<uint64_t>> ListQuotaGroups(int root) {
  std::vector<uint64_t> groups;
  auto add = [&](const btrfs_ioctl_search_header& h, std::string_view) { groups.push_back(h.offset); };
  SB_TRYV(Search(root, BTRFS_QUOTA_TREE_OBJECTID, BTRFS_QGROUP_INFO_KEY, {0, 0}, {0, ~0ULL}, add));
  return groups;
}

Result<bool> SubvolumeExists(int root, uint64_t id) {
  bool found = false;
  auto note = [&](const btrfs_ioctl_search_header&, std::string_view) { found = true; };
  SB_TRYV(Search(root, BTRFS_ROOT_TREE_OBJECTID, BTRFS_ROOT_ITEM_KEY, {id, id}, {0, ~0ULL}, note));
  return found;
}

namespace {

Result<std::string> GroupPath(int root, uint64_t group) {
  SB_TRY(std::string path, BtrfsSysPath(root));
  const uint64_t number = group & ((1ULL << 48) - 1);
  return path + "/qgroups/" + std::to_string(GroupLevel(group)) + "_" + std::to_string(number) + "/";
}

Result<uint64_t> ReadNumber(const std::string& path) {
  Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 32> text{};
  uint64_t value = 0;
  const ssize_t n = file ? ::read(file.get(), text.data(), text.size()) : -1;
  if (n <= 0 || std::from_chars(text.data(), text.data() + n, value).ec != std::errc{})
    return Fail(Code::kUnsupported, "the kernel does not show " + path);
  return value;
}

}  // namespace

Result<QuotaGroupState> ReadQuotaGroup(int root, uint64_t group) {
  SB_TRY(const std::string path, GroupPath(root, group));
  QuotaGroupState state;
  for (const char* name : {"referenced", "rsv_data", "rsv_meta_pertrans", "rsv_meta_prealloc"}) {
    SB_TRY(uint64_t bytes, ReadNumber(path + name));
    state.held += bytes;
  }
  SB_TRY(uint64_t flags, ReadNumber(path + "limit_flags"));
  if ((flags & BTRFS_QGROUP_LIMIT_MAX_RFER) == 0) return state;
  SB_TRY(state.limit, ReadNumber(path + "max_referenced"));
  return state;
}

Result<uint64_t> QuotaGroupUsage(int root, uint64_t group) {
  SB_TRY(const std::string path, GroupPath(root, group));
  std::ifstream file(path + "referenced");
  uint64_t bytes = 0;
  if (file >> bytes) return bytes;
  return SubvolumeUsage(root, group);  // as of the last commit
}

Result<BtrfsSpace> SpaceOf(int root) {
  constexpr uint64_t kSlots = 16;
  constexpr uint64_t kGlobalReserve = 1ULL << 49;  // what is set aside of metadata for the kernel itself
  // A btrfs_ioctl_space_args (how many there is room for, how many there are) with the entries behind it.
  std::array<uint64_t, 2 + kSlots * sizeof(btrfs_ioctl_space_info) / sizeof(uint64_t)> args{};
  args[0] = kSlots;
  if (::ioctl(root, BTRFS_IOC_SPACE_INFO, args.data()) != 0) return FailErrno("btrfs space");
  BtrfsSpace out;
  uint64_t reserve = 0;
  for (uint64_t i = 0; i < std::min(args[1], kSlots); ++i) {
    btrfs_ioctl_space_info s{};
    std::memcpy(&s, args.data() + 2 + i * sizeof s / sizeof(uint64_t), sizeof s);
    const uint64_t left = s.total_bytes - std::min(s.total_bytes, s.used_bytes);
    if ((s.flags & kGlobalReserve) != 0) {
      reserve = s.total_bytes;
      continue;
    }
    out.used += s.used_bytes;
    if ((s.flags & BTRFS_BLOCK_GROUP_DATA) != 0) out.data_free += left;
    if ((s.flags & BTRFS_BLOCK_GROUP_METADATA) != 0) out.metadata_free += left;
  }
  out.metadata_free -= std::min(out.metadata_free, reserve);
  btrfs_ioctl_dev_info_args device{};
  device.devid = 1;
  if (::ioctl(root, BTRFS_IOC_DEV_INFO, &device) != 0) return FailErrno("btrfs device");
  out.total = device.total_bytes;
  out.unallocated = device.total_bytes - std::min(device.total_bytes, device.bytes_used);
  return out;
}

Result<> SetMetadataChunkSize(int root, uint64_t bytes) {
  SB_TRY(std::string path, BtrfsSysPath(root));
  std::ofstream file(path + "/allocation/metadata/chunk_size");
  if (file << bytes << std::flush) return {};
  return Fail(Code::kUnsupported, "the size of metadata chunks cannot be set");
}

void ReclaimDataChunks(int root) {
  auto path = BtrfsSysPath(root);
  if (!path) return;
  // Kernel 6.11: by need, in the background. A file that is not there stays so.
  for (const char* name : {"dynamic_reclaim", "periodic_reclaim"})
    if (std::ofstream file(*path + "/allocation/data/" + name); file) file << 1 << std::flush;
}

Result<> GrowToDevice(int root) {
  btrfs_ioctl_vol_args args{};
  std::strcpy(args.name, "max");
  if (::ioctl(root, BTRFS_IOC_RESIZE, &args) != 0) return FailErrno("grow the store");
  return {};
}

}  // namespace sandbar::os
