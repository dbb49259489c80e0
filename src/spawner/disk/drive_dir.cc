#include "spawner/disk/drive_dir.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "os/openat.h"
#include "spawner/disk/layers.h"

namespace sandbar::spawner {
namespace {

constexpr size_t kMaxName = 64;
constexpr mode_t kUnclaimed = 0700;  // with root as its owner: nobody has used the drive yet
constexpr const char* kSize = "trusted.sandbar.size";
constexpr uint64_t kUnknownSize = 8ULL << 30;  // of one that was made before sizes were written down

bool Unclaimed(const struct stat& st) {
  return st.st_uid == 0 && (st.st_mode & 07777) == kUnclaimed;
}

}  // namespace

Result<> DriveDir::Check(const std::string& name) {
  if (!ValidId(name, kMaxName)) return Fail(Code::kBadRequest, "bad drive name");
  return {};
}

Result<> DriveDir::Fill(int drive) {
  SB_TRYV(os::EnsureDir(drive, "work", 0755));
  // An existing one is its users': neither its owner nor its mode is ours to set.
  if (::mkdirat(drive, "upper", kUnclaimed) != 0 && errno != EEXIST) return FailErrno("make a drive");
  return {};
}

Result<> DriveDir::Claim(const std::string& path, uid_t uid, gid_t gid) {
  SB_TRY(Fd drive, os::OpenPath(path, O_PATH | O_DIRECTORY));
  SB_TRY(Fd upper, os::OpenInside(drive.get(), "upper", O_RDONLY | O_DIRECTORY));
  struct stat st{};
  if (::fstat(upper.get(), &st) != 0) return FailErrno("stat a drive");
  if (!Unclaimed(st)) return {};
  if (::fchown(upper.get(), uid, gid) != 0) return FailErrno("chown a drive");
  if (::fchmod(upper.get(), 0755) != 0) return FailErrno("chmod a drive");
  return {};
}

Result<> DriveDir::SetSize(int drive, uint64_t bytes) {
  const std::string text = std::to_string(bytes);
  if (::fsetxattr(drive, kSize, text.data(), text.size(), 0) != 0) return FailErrno("write down a drive's size");
  return {};
}

uint64_t DriveDir::Size(const std::string& path) {
  char text[24];
  ssize_t n = ::lgetxattr(path.c_str(), kSize, text, sizeof text);
  uint64_t bytes = 0;
  if (n <= 0 || std::from_chars(text, text + n, bytes).ec != std::errc()) return kUnknownSize;
  return bytes;
}

bool DriveDir::Unused(const std::string& path) {
  struct stat st{};
  std::error_code ec;
  // A guest's root may give it that owner and mode again; what is in it tells.
  return ::lstat((path + "/upper").c_str(), &st) == 0 && Unclaimed(st) &&
         std::filesystem::is_empty(path + "/upper", ec) && !ec;
}

Result<std::string> DriveDir::Path(const std::string& name) const {
  if (ValidId(name, kMaxName) && os::OpenInside(dir_.get(), name, O_PATH | O_DIRECTORY)) return path_ + "/" + name;
  return Fail(Code::kNotFound, "drive " + name + " is not on this host");
}

Result<std::vector<std::string>> DriveDir::List(const std::string& after, size_t max) const {
  SB_TRY(auto names, os::ListDir(dir_.get()));
  std::erase_if(names, [](const std::string& name) { return name.starts_with('.'); });
  std::ranges::sort(names);
  names.erase(names.begin(), std::ranges::upper_bound(names, after));
  if (names.size() > max) names.resize(max);
  return names;
}

}  // namespace sandbar::spawner
