#include "spawner/disk/store_image.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <array>
#include <string>
#include <vector>

#include "base/log.h"
#include "os/mounts.h"
#include "os/mounts_loop.h"
#include "os/openat.h"
#include "os/process.h"

namespace sandbar::spawner {
namespace {

constexpr uint64_t kSmallestPool = 256ULL << 20;
constexpr off_t kMagicOffset = 0x10040;
constexpr std::string_view kMagic = "_BHRfS_M";

Result<Fd> OpenImage(int data) {
  SB_TRY(Fd image, os::OpenInside(data, "store.img", O_RDWR | O_CREAT, 0600));
  struct stat st{};
  if (::fstat(image.get(), &st) != 0) return FailErrno("stat store.img");
  // The data directory belongs to the daemon: an image that somebody else could have written is never mounted.
  if (!S_ISREG(st.st_mode) || st.st_uid != 0 || st.st_nlink != 1 || (st.st_mode & 077) != 0)
    return Fail(Code::kForbidden, "store.img must be a regular file of root with mode 0600");
  return image;
}

Result<bool> HasFilesystem(int image) {
  std::array<char, 8> magic{};
  ssize_t n = ::pread(image, magic.data(), magic.size(), kMagicOffset);
  if (n < 0) return FailErrno("read store.img");
  return std::string_view(magic.data(), static_cast<size_t>(n)) == kMagic;
}

Result<uint64_t> ChoosePoolSize(int image, uint64_t wanted) {
  struct statvfs vfs{};
  if (::fstatvfs(image, &vfs) != 0) return FailErrno("statvfs");
  uint64_t free_bytes = static_cast<uint64_t>(vfs.f_bavail) * vfs.f_frsize;
  uint64_t size = wanted != 0 ? wanted : free_bytes / 10 * 8;
  size = size / (1 << 20) * (1 << 20);
  if (size < kSmallestPool)
    return Fail(Code::kQuota,
                "the disk is too full for the machines' store: " + std::to_string(free_bytes >> 20) +
                    " MiB free, at least 320 MiB needed (or [disk] limit = \"none\" in the configuration)");
  return size;
}

// An operator may ask for more than last time; less is never taken away.
Result<> GrowImage(int image, uint64_t wanted) {
  struct stat st{};
  if (::fstat(image, &st) != 0) return FailErrno("stat store.img");
  wanted = wanted / (1 << 20) * (1 << 20);
  if (wanted <= static_cast<uint64_t>(st.st_size)) return {};
  if (::ftruncate(image, static_cast<off_t>(wanted)) != 0) return FailErrno("grow store.img");
  return {};
}

// Machines of a dead predecessor may hold the old mount a moment longer; after that its device is used again.
Result<os::LoopDevice> LoopFor(int image) {
  for (int i = 0; i < 50; ++i) {
    auto old = os::FindLoop(image);
    if (!old) return os::AttachLoop(image, false);
    if (i == 49) return old;
    old->fd.Reset();
    ::usleep(20'000);
  }
  return os::AttachLoop(image, false);
}

}  // namespace

Result<StoreMount> MountStoreImage(const DiskOptions& options) {
  SB_TRY(Fd image, OpenImage(options.data));
  SB_TRY(bool formatted, HasFilesystem(image.get()));
  if (!formatted) {
    SB_TRY(uint64_t size, ChoosePoolSize(image.get(), options.pool_bytes));
    if (::ftruncate(image.get(), static_cast<off_t>(size)) != 0) return FailErrno("size store.img");
  } else {
    SB_TRYV(GrowImage(image.get(), options.pool_bytes));
  }
  SB_TRY(os::LoopDevice loop, LoopFor(image.get()));
  if (!formatted) SB_TRYV(os::RunProgram({"mkfs.btrfs", "-q", "-f", "-K", "-m", "single", "-d", "single", loop.path}));
  // Files without checksums cannot be compressed: guests could ask for it, and threads of the kernel would do it, whose
  // time nobody is charged for. Snapshots have manifests, and memory has sums of its own.
  std::vector<os::MountOption> mount_options = {
      {"source", loop.path}, {"discard", "async"}, {"commit", "10"}, {"nodatasum", "", true}};
  auto mount = os::NewMount("btrfs", mount_options,
                            MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC | MOUNT_ATTR_NOATIME);
  if (!mount) return std::unexpected(std::move(mount).error().Context("store.img"));
  SB_TRYV(os::Attach(mount->get(), AT_FDCWD, options.mount_point));
  SB_TRY(Fd root, os::OpenPath(options.mount_point, O_RDONLY | O_DIRECTORY));
  if (auto grown = os::GrowToDevice(root.get()); !grown) log::Warn("{}", grown.error().message);
  SB_TRY(os::QuotaMode quota, os::EnableQuota(root.get(), options.force_full_quota));
  return StoreMount{std::move(root), std::move(image), quota};
}

}  // namespace sandbar::spawner
