#include "spawner/vm_disk.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/ids.h"
#include "os/mounts.h"
#include "os/openat.h"
#include "os/overlay.h"
#include "os/process.h"

namespace sandbar::spawner {
namespace {

constexpr const char* kDiskFile = "disk.img";
// No guest of another kind can set it: attributes of this name need the host's root.
constexpr const char* kFormat = "trusted.sandbar.format";
constexpr uint64_t kSmallest = 64ULL << 20;

// A name for exactly these layers.
std::string MergedName(const std::vector<std::string>& ids, const std::string& digest) {
  uint64_t hash = 14695981039346656037ULL;
  for (const std::string& id : ids)
    for (char c : id + "/") hash = (hash ^ static_cast<uint8_t>(c)) * 1099511628211ULL;
  return digest + "-" + Hex(std::string_view(reinterpret_cast<const char*>(&hash), sizeof hash));
}

Result<Fd> MergedDir(const Host& host) {
  SB_TRY(Fd images, os::OpenPath(host.options.images, O_RDONLY | O_DIRECTORY));
  return os::EnsureDir(images.get(), "merged", 0700);
}

}  // namespace

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

Result<Fd> OpenMergedImage(const Host& host, const std::vector<std::string>& ids, const std::string& digest) {
  SB_TRY(Fd dir, MergedDir(host));
  return os::OpenInside(dir.get(), MergedName(ids, digest) + ".erofs", O_RDONLY);
}

Result<Fd> MergeImage(const Host& host, const std::vector<std::string>& ids, const std::string& digest,
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

Result<Fd> OpenVmDisk(const DiskSlot& slot, uint64_t bytes, bool* fresh) {
  std::string upper = slot.path + "/upper";
  SB_TRY(Fd dir, os::OpenPath(upper, O_RDONLY | O_DIRECTORY));
  auto old = os::OpenInside(dir.get(), kDiskFile, O_RDWR);
  *fresh = !old;
  if (old) {
    // A snapshot may have been made with a smaller limit; a filesystem does not shrink.
    struct stat st{};
    if (::fstat(old->get(), &st) != 0) return FailErrno("stat the disk");
    auto want = static_cast<off_t>(std::max(bytes, kSmallest));
    if (want > st.st_size && ::ftruncate(old->get(), want) != 0) return FailErrno("grow the disk");
    return old;
  }
  if (::fsetxattr(dir.get(), kFormat, "block", 5, 0) != 0) return FailErrno("mark the disk's format");
  SB_TRY(Fd disk, os::OpenInside(dir.get(), kDiskFile, O_RDWR | O_CREAT | O_EXCL, 0600));
  // Written in place, or every overwritten block would keep the old one alive; after a snapshot blocks are copied once.
  int flags = FS_NOCOW_FL;
  if (::ioctl(disk.get(), FS_IOC_SETFLAGS, &flags) != 0) return FailErrno("set the disk's flags");
  if (::ftruncate(disk.get(), static_cast<off_t>(std::max(bytes, kSmallest))) != 0) return FailErrno("size the disk");
  return disk;
}

Result<> FormatVmDisk(int disk) {
  Fd copy(::fcntl(disk, F_DUPFD, 3));  // inherited
  if (!copy) return FailErrno("dup");
  return os::RunProgram({"mkfs.ext4", "-q", "-F", "-m", "0", "-E", "nodiscard,lazy_itable_init=1",
                         "/proc/self/fd/" + std::to_string(copy.get())});
}

}  // namespace sandbar::spawner
