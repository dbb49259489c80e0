#include "spawner/disk/vm_disk.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>

#include "base/ids.h"
#include "os/mounts.h"
#include "os/openat.h"
#include "os/overlay.h"
#include "os/process.h"
#include "spawner/disk/drive_dir.h"

namespace sandbar::spawner {
namespace {

// No guest of another kind can set it: attributes of this name need the host's root.
constexpr const char* kFormat = "trusted.sandbar.format";
constexpr const char* kHalfMade = "disk.new";  // its name until it has a filesystem
constexpr uint64_t kSmallest = 64ULL << 20;
constexpr uint64_t kLargestDrive = 8ULL << 40;  // more than any host has, and less than ext4 takes
constexpr uint64_t kLargeDisk = 4ULL << 30;
constexpr uint64_t kDefaultDisk = 8ULL << 30;

// A name for exactly these layers.
std::string MergedName(const std::vector<std::string>& ids, const std::string& digest) {
  uint64_t hash = 14695981039346656037ULL;
  for (const std::string& id : ids)
    for (char c : id + "/") hash = (hash ^ static_cast<uint8_t>(c)) * 1099511628211ULL;
  return digest + "-" + Hex(std::string_view(reinterpret_cast<const char*>(&hash), sizeof hash));
}

Result<Fd> MergedDir(const HostResources& host) {
  SB_TRY(Fd images, os::OpenPath(host.options.images, O_RDONLY | O_DIRECTORY));
  return os::EnsureDir(images.get(), "merged", 0700);
}

}  // namespace

uint64_t VmDiskBytes(uint64_t limit) {
  return limit == 0 ? kDefaultDisk : std::max(limit, kSmallest);
}

uint64_t VmDriveBytes(const std::string& path) {
  return std::min(DriveDir::Size(path), kLargestDrive);
}

bool HasVmDisk(const std::string& drive) {
  return IsBlockFormat(drive + "/upper") && ::access((drive + "/upper/" + kVmDiskFile).c_str(), F_OK) == 0;
}

bool IsBlockFormat(const std::string& layer) {
  char value[8] = {};
  ssize_t n = ::lgetxattr(layer.c_str(), kFormat, value, sizeof value);
  return n == 5 && std::string_view(value, 5) == "block";
}

Result<> CheckFormat(const std::string& snapshot, const std::string& layer, bool block) {
  if (IsBlockFormat(layer) == block) return {};
  return Fail(Code::kConflict, "snapshot " + snapshot + " has the format " + (block ? "dir" : "block") + ", and " +
                                   (block ? "block" : "dir") + " is needed here");
}

Result<Fd> OpenMergedImage(const HostResources& host, const std::vector<std::string>& ids, const std::string& digest) {
  SB_TRY(Fd dir, MergedDir(host));
  return os::OpenInside(dir.get(), MergedName(ids, digest) + ".erofs", O_RDONLY);
}

Result<Fd> MergeImage(const HostResources& host, const std::vector<std::string>& ids, const std::string& digest,
                      const std::vector<std::string>& layers) {
  SB_TRY(Fd dir, MergedDir(host));
  std::string name = MergedName(ids, digest);
  // Whoever comes second waits for the first instead of doing it again.
  SB_TRY(Fd lock, os::OpenInside(dir.get(), name + ".lock", O_RDWR | O_CREAT, 0600));
  if (::flock(lock.get(), LOCK_EX) != 0) return FailErrno("lock the image");
  if (auto made = OpenMergedImage(host, ids, digest)) return made;
  // Whoever was killed over it before left its part behind.
  SB_TRY(auto left, os::ListDir(dir.get()));
  for (const std::string& file : left) {
    if (file.starts_with(name + ".") && !file.ends_with(".lock")) ::unlinkat(dir.get(), file.c_str(), 0);
  }
  std::string source = layers.front();
  if (layers.size() > 1) {
    os::OverlaySpec spec;
    std::vector<Fd> parts;
    for (const std::string& layer : layers) {
      SB_TRY(Fd part, os::CloneTree(AT_FDCWD, layer));
      spec.layers.push_back(part.get());
      parts.push_back(std::move(part));
    }
    spec.scratch = std::string(kMountDir) + "/m";
    spec.force_paths = host.options.force_fallback.contains("overlay");
    SB_TRY(Fd merged, os::MountOverlay(spec));
    source = spec.scratch;
    SB_TRYV(os::Attach(merged.get(), AT_FDCWD, source));
  }
  std::string part = name + "." + NewLabel("", 8);
  std::string path = host.options.images + "/merged/" + part;
  auto made = os::RunProgram({"mkfs.erofs", "--quiet", path, source});
  if (made && ::chmod(path.c_str(), 0400) != 0) made = FailErrno("chmod");
  if (made && ::renameat(dir.get(), part.c_str(), dir.get(), (name + ".erofs").c_str()) != 0)
    made = FailErrno("rename");
  if (!made) {
    ::unlinkat(dir.get(), part.c_str(), 0);
    return std::unexpected(std::move(made).error().Context("merge the image"));
  }
  ::unlinkat(dir.get(), (name + ".lock").c_str(), 0);
  return OpenMergedImage(host, ids, digest);
}

namespace {

// Larger than before when the limit is; a filesystem does not shrink.
Result<> GrowTo(int disk, uint64_t bytes) {
  struct stat st{};
  if (::fstat(disk, &st) != 0) return FailErrno("stat the disk");
  auto want = static_cast<off_t>(bytes);
  if (want > st.st_size && ::ftruncate(disk, want) != 0) return FailErrno("grow the disk");
  return {};
}

Result<Fd> NewDiskFile(int dir, const std::string& name) {
  SB_TRY(Fd disk, os::OpenInside(dir, name, O_RDWR | O_CREAT | O_EXCL, 0600));
  // Written in place, or every overwritten block would keep the old one alive; after a snapshot blocks are copied once.
  int flags = FS_NOCOW_FL;
  if (::ioctl(disk.get(), FS_IOC_SETFLAGS, &flags) != 0) return FailErrno("set the disk's flags");
  return disk;
}

}  // namespace

Result<Fd> CreateVmDisk(int dir, uint64_t bytes, const char* name) {
  if (::fsetxattr(dir, kFormat, "block", 5, 0) != 0) return FailErrno("mark the disk's format");
  SB_TRY(Fd disk, NewDiskFile(dir, name));
  if (::ftruncate(disk.get(), static_cast<off_t>(bytes)) != 0) return FailErrno("size the disk");
  return disk;
}

Result<Fd> OpenVmDisk(const DiskSlot& slot, uint64_t bytes, bool* fresh) {
  std::string upper = slot.path + "/upper";
  SB_TRY(Fd dir, os::OpenPath(upper, O_RDONLY | O_DIRECTORY));
  auto disk = os::OpenInside(dir.get(), kVmDiskFile, O_RDWR);
  *fresh = !disk;
  if (!disk) return CreateVmDisk(dir.get(), bytes);
  SB_TRYV(GrowTo(disk->get(), bytes));
  return disk;
}

namespace {

Result<uint64_t> SizeOf(int disk) {
  struct stat st{};
  if (::fstat(disk, &st) != 0) return FailErrno("stat the disk");
  return static_cast<uint64_t>(st.st_size);
}

}  // namespace

Result<DriveDevice> OpenVmDrive(const HostResources& host, const DiskSlot& slot, const DriveMount& mount) {
  DriveDevice drive;
  SB_TRY(drive.path, host.disk->DrivePath(mount.drive));
  SB_TRY(Fd upper, os::OpenPath(drive.path + "/upper", O_RDONLY | O_DIRECTORY));
  const bool block = IsBlockFormat(drive.path + "/upper");
  if (!block && !(mount.writable && DriveDir::Unused(drive.path)))
    return Fail(Code::kConflict, "drive " + mount.drive + " has the format dir, and block is needed here");
  auto disk = os::OpenInside(upper.get(), kVmDiskFile, mount.writable ? O_RDWR : O_RDONLY);
  // Marked without a device: whoever was to format it was killed over that.
  drive.fresh = mount.writable && !disk && disk.error().sys_errno == ENOENT;
  drive.copy = !mount.writable;
  if (drive.fresh) {
    ::unlinkat(upper.get(), kHalfMade, 0);
    SB_TRY(drive.disk, CreateVmDisk(upper.get(), VmDriveBytes(drive.path), kHalfMade));
    // From now on this is what it may take.
    SB_TRYV(host.disk->CreateDrive(mount.drive, DriveDir::Size(drive.path), DiskOwner{}));
  } else if (!disk) {
    return std::unexpected(std::move(disk).error());
  } else if (drive.copy) {
    SB_TRY(Fd work, os::OpenPath(slot.path + "/work", O_RDONLY | O_DIRECTORY));
    SB_TRY(drive.disk, NewDiskFile(work.get(), NewLabel("drive-", 8)));
    SB_TRY(drive.bytes, SizeOf(disk->get()));
    return drive;
  } else {
    SB_TRYV(GrowTo(disk->get(), VmDriveBytes(drive.path)));
    drive.disk = *std::move(disk);
  }
  SB_TRY(drive.bytes, SizeOf(drive.disk.get()));
  return drive;
}

Result<> FinishVmDrive(const DriveDevice& drive) {
  if (!drive.fresh && !drive.copy) return {};
  SB_TRY(Fd upper, os::OpenPath(drive.path + "/upper", O_RDONLY | O_DIRECTORY));
  if (drive.copy) {
    SB_TRY(Fd original, os::OpenInside(upper.get(), kVmDiskFile, O_RDONLY));
    if (::ioctl(drive.disk.get(), FICLONE, original.get()) != 0) return FailErrno("copy a drive");
    return {};
  }
  SB_TRYV(FormatVmDisk(drive.disk.get()));
  if (::renameat(upper.get(), kHalfMade, upper.get(), kVmDiskFile) != 0) return FailErrno("name a drive");
  return {};
}

Result<uint64_t> CopiedBytes(const HostResources& host, const DriveMount& mount) {
  if (mount.writable) return 0;
  SB_TRY(std::string path, host.disk->DrivePath(mount.drive));
  struct stat st{};
  if (::lstat((path + "/upper/" + kVmDiskFile).c_str(), &st) != 0) return 0;
  return static_cast<uint64_t>(st.st_blocks) * 512;
}

std::vector<std::string> FormatWords(uint64_t bytes) {
  std::vector<std::string> words = {
      "mke2fs", "-t", "ext4", "-q", "-F", "-m", "0", "-E", "nodiscard,lazy_itable_init=1"};
  // By default a large one would take a gigabyte of the host's disk at once.
  if (bytes >= kLargeDisk) words.insert(words.end(), {"-J", "size=64"});
  return words;
}

Result<> FormatVmDisk(int disk) {
  Fd copy(::fcntl(disk, F_DUPFD, 3));  // inherited
  if (!copy) return FailErrno("dup");
  struct stat st{};
  if (::fstat(disk, &st) != 0) return FailErrno("stat the disk");
  std::vector<std::string> words = FormatWords(static_cast<uint64_t>(st.st_size));
  words.push_back("/proc/self/fd/" + std::to_string(copy.get()));
  return os::RunProgram(words);
}

}  // namespace sandbar::spawner
