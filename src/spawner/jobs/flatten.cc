#include "spawner/jobs/flatten.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>

#include "os/openat.h"
#include "os/overlay_view.h"

namespace sandbar::spawner {
namespace {

constexpr size_t kMaxXattrValue = 64 << 10;

using os::Path;

Result<> CopyXattrs(int from, int to) {
  std::string names(64 << 10, '\0');
  ssize_t n = ::flistxattr(from, names.data(), names.size());
  if (n < 0) return errno == ENOTSUP ? Result<>{} : FailErrno("list attributes");
  std::string_view rest(names.data(), static_cast<size_t>(n));
  std::string value(kMaxXattrValue, '\0');
  while (!rest.empty()) {
    std::string name(rest.substr(0, rest.find('\0')));
    rest.remove_prefix(name.size() + 1);
    if (name.starts_with(os::kOverlayPrefix)) continue;
    ssize_t size = ::fgetxattr(from, name.c_str(), value.data(), value.size());
    if (size < 0 || ::fsetxattr(to, name.c_str(), value.data(), static_cast<size_t>(size), 0) != 0)
      return FailErrno("copy attribute " + name);
  }
  return {};
}

// Owner before mode: chown clears the set-id bits. Times last: everything else changes them.
Result<> CopyMetadata(int from, int to, const struct stat& st) {
  if (::fchown(to, st.st_uid, st.st_gid) != 0) return FailErrno("set the owner");
  if (::fchmod(to, st.st_mode & 07777) != 0) return FailErrno("set the mode");
  SB_TRYV(CopyXattrs(from, to));
  std::array<timespec, 2> times = {st.st_atim, st.st_mtim};
  if (::futimens(to, times.data()) != 0) return FailErrno("set the times");
  return {};
}

Result<> CopyData(int from, int to, off_t size) {
  if (::ioctl(to, FICLONE, from) == 0) return {};
  if (::ftruncate(to, size) != 0) return FailErrno("set the size");
  off_t at = 0;
  while (at < size) {
    off_t data = ::lseek(from, at, SEEK_DATA);
    if (data < 0 && errno == ENXIO) return {};  // a hole to the end
    off_t hole = data < 0 ? size : ::lseek(from, data, SEEK_HOLE);
    if (data < 0) data = at;
    off_t out = data;
    while (data < hole) {
      ssize_t n = ::copy_file_range(from, &data, to, &out, static_cast<size_t>(hole - data), 0);
      if (n < 0) return FailErrno("copy a file");
      if (n == 0) return {};
    }
    at = hole;
  }
  return {};
}

class Flattener {
 public:
  Flattener(const std::vector<Fd>* layers, int target) : layers_(*layers), target_(target) {}

  Result<> Run() {
    Fd copy(::openat(target_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!copy) return FailErrno("open the target");
    Path root;
    return Directory(root, copy.get());
  }

 private:
  using Seen = std::map<std::string, bool>;  // name -> handled by a higher layer

  Result<> Directory(const Path& path, int to) {
    if (path.size() > os::kMaxDepth) return Fail(Code::kTooLarge, "a directory lies too deep");
    std::vector<std::string> children;
    struct stat st{};
    {
      os::Merged merged = os::LookUp(layers_, path);
      if (merged.parts.empty()) return Fail(Code::kInternal, "a directory vanished");
      int top = merged.parts.front().second.get();
      if (::fstat(top, &st) != 0) return FailErrno("stat a directory");
      Seen seen;
      for (const auto& [layer, dir] : merged.parts)
        SB_TRYV(Entries(merged, layer, dir.get(), to, seen, children, path));
      if (merged.opaque && ::fsetxattr(to, os::kOpaque, "y", 1, 0) != 0) return FailErrno("mark a directory");
      if (!merged.opaque && merged.below != path) {
        std::string where = os::Join(merged.below);
        if (::fsetxattr(to, os::kRedirect, where.data(), where.size(), 0) != 0)
          return FailErrno("redirect a directory");
      }
    }
    for (const std::string& name : children) {
      if (::mkdirat(to, name.c_str(), 0700) != 0) return FailErrno("make a directory");
      Fd child = os::OpenDirAt(to, name);
      if (!child) return FailErrno("open a directory");
      Path below = path;
      below.push_back(name);
      SB_TRYV(Directory(below, child.get()));
    }
    os::Merged again = os::LookUp(layers_, path);
    return CopyMetadata(again.parts.front().second.get(), to, st);
  }

  Result<> Entries(const os::Merged& merged, size_t layer, int dir, int to, Seen& seen,
                   std::vector<std::string>& children, const Path& path) {
    SB_TRY(auto names, os::ListDir(dir));
    for (const std::string& name : names) {
      if (!seen.emplace(name, true).second) continue;
      struct stat st{};
      if (::fstatat(dir, name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) return FailErrno("stat an entry");
      if (S_ISDIR(st.st_mode)) {
        children.push_back(name);
      } else if (os::IsWhiteout(st)) {
        if (!merged.opaque && ::mknodat(to, name.c_str(), S_IFCHR, makedev(0, 0)) != 0) return FailErrno("whiteout");
      } else {
        SB_TRYV(Leaf(layer, dir, name, st, to, path));
      }
    }
    return {};
  }

  // Anything but a directory.
  Result<> Leaf(size_t layer, int dir, const std::string& name, const struct stat& st, int to, const Path& path) {
    if (st.st_nlink > 1) {
      auto [it, fresh] = links_.try_emplace({layer, st.st_ino}, "");
      if (!fresh) return Link(it->second, to, name);
      std::string where = os::Join(path);
      it->second = (where == "/" ? "" : where.substr(1) + "/") + name;
    }
    if (S_ISREG(st.st_mode)) return File(dir, name, st, to);
    if (S_ISLNK(st.st_mode)) return Symlink(dir, name, st, to);
    if (!S_ISFIFO(st.st_mode) && !S_ISSOCK(st.st_mode)) return {};  // no device node belongs in a guest's tree
    if (::mknodat(to, name.c_str(), st.st_mode, 0) != 0) return FailErrno("make a special file");
    return OwnerAndTimes(to, name, st);
  }

  Result<> Link(const std::string& first, int to, const std::string& name) const {
    SB_TRY(Fd source, os::OpenInside(target_, first, O_PATH));
    std::string by_fd = "/proc/self/fd/" + std::to_string(source.get());
    if (::linkat(AT_FDCWD, by_fd.c_str(), to, name.c_str(), AT_SYMLINK_FOLLOW) != 0) return FailErrno("link a file");
    return {};
  }

  static Result<> File(int dir, const std::string& name, const struct stat& st, int to) {
    Fd from(::openat(dir, name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (!from) return FailErrno("open a file");
    Fd out(::openat(to, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!out) return FailErrno("make a file");
    SB_TRYV(CopyData(from.get(), out.get(), st.st_size));
    return CopyMetadata(from.get(), out.get(), st);
  }

  static Result<> Symlink(int dir, const std::string& name, const struct stat& st, int to) {
    std::array<char, 4097> text{};
    ssize_t n = ::readlinkat(dir, name.c_str(), text.data(), text.size() - 1);
    if (n < 0 || ::symlinkat(text.data(), to, name.c_str()) != 0) return FailErrno("copy a link");
    return OwnerAndTimes(to, name, st);
  }

  static Result<> OwnerAndTimes(int to, const std::string& name, const struct stat& st) {
    if (::fchownat(to, name.c_str(), st.st_uid, st.st_gid, AT_SYMLINK_NOFOLLOW) != 0) return FailErrno("set the owner");
    std::array<timespec, 2> times = {st.st_atim, st.st_mtim};
    if (::utimensat(to, name.c_str(), times.data(), AT_SYMLINK_NOFOLLOW) != 0) return FailErrno("set the times");
    return {};
  }

  const std::vector<Fd>& layers_;
  int target_;
  std::map<std::pair<size_t, ino_t>, std::string> links_;  // layer and inode -> first name in the target
};

}  // namespace

Result<> FlattenLayers(const std::vector<Fd>& layers, int target) {
  return Flattener(&layers, target).Run();
}

}  // namespace sandbar::spawner
