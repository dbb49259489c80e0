#include "os/openat.h"

#include <dirent.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <memory>

#include "base/files.h"
#include "base/ids.h"

namespace sandbar::os {
namespace {

constexpr int kMaxDepth = 256;

Result<Fd> OpenResolved(int root, const std::string& path, int flags, mode_t mode, uint64_t resolve) {
  open_how how{};
  how.flags = static_cast<uint64_t>(flags) | O_CLOEXEC;
  // openat2 is strict: mode bits without a creating flag are EINVAL.
  how.mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? mode : 0;
  how.resolve = resolve;
  for (int attempt = 0; attempt < 16; ++attempt) {
    long fd = ::syscall(SYS_openat2, root, path.c_str(), &how, sizeof how);
    if (fd >= 0) return Fd(static_cast<int>(fd));
    // EAGAIN: a rename elsewhere raced with a scoped lookup.
    if (errno != EAGAIN && errno != EINTR) break;
  }
  return FailErrno("open " + path);
}

struct DirCloser {
  void operator()(DIR* d) const { ::closedir(d); }
};

bool IsDots(const char* name) {
  return name[0] == '.' && (name[1] == 0 || (name[1] == '.' && name[2] == 0));
}

// Empties one directory. A subdirectory below the depth limit is moved up to `top` and left for the next round.
Result<bool> EmptyDir(int dir, int top, dev_t device, int depth) {
  SB_TRY(auto names, ListDir(dir));
  bool moved = false;
  for (const auto& name : names) {
    if (::unlinkat(dir, name.c_str(), 0) == 0 || errno == ENOENT) continue;
    if (errno != EISDIR && errno != EPERM) return FailErrno("unlink");
    auto child = OpenInside(dir, name, O_RDONLY | O_DIRECTORY);
    if (!child) return std::unexpected(std::move(child).error());
    struct stat st{};
    if (::fstat(child->get(), &st) != 0) return FailErrno("stat");
    if (st.st_dev != device) return Fail(Code::kConflict, "a filesystem is mounted inside the tree");
    if (depth >= kMaxDepth) {
      std::string fresh = NewLabel("deep-", 16);
      if (::renameat(dir, name.c_str(), top, fresh.c_str()) != 0) return FailErrno("flatten deep tree");
      moved = true;
      continue;
    }
    SB_TRY(bool below, EmptyDir(child->get(), top, device, depth + 1));
    moved = moved || below;
    if (::unlinkat(dir, name.c_str(), AT_REMOVEDIR) != 0 && errno != ENOENT) return FailErrno("rmdir");
  }
  return moved;
}

}  // namespace

Result<Fd> OpenInside(int root, const std::string& path, int flags, mode_t mode) {
  return OpenResolved(root, path, flags | O_NOFOLLOW, mode,
                      RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS);
}

Result<Fd> OpenInRoot(int root, const std::string& path, int flags) {
  return OpenResolved(root, path, flags, 0, RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS);
}

Result<Fd> OpenPath(const std::string& path, int flags, mode_t mode) {
  int fd = ::open(path.c_str(), flags | O_CLOEXEC, mode);
  if (fd < 0) return FailErrno("open " + path);
  return Fd(fd);
}

Result<Fd> EnsureDir(int parent, const std::string& name, mode_t mode, uid_t uid, gid_t gid) {
  if (::mkdirat(parent, name.c_str(), 0700) != 0 && errno != EEXIST) return FailErrno("mkdir " + name);
  SB_TRY(Fd dir, OpenInside(parent, name, O_RDONLY | O_DIRECTORY));
  if (::fchown(dir.get(), uid, gid) != 0) return FailErrno("chown " + name);
  if (::fchmod(dir.get(), mode) != 0) return FailErrno("chmod " + name);
  return dir;
}

Result<std::string> ReadFile(const std::string& path, size_t max) {
  SB_TRY(Fd fd, OpenPath(path, O_RDONLY | O_NOCTTY));
  return ReadAll(fd.get(), max, path);
}

Result<> WriteFileAt(int dir, const std::string& name, std::string_view bytes, mode_t mode) {
  if (::unlinkat(dir, name.c_str(), 0) != 0 && errno != ENOENT) return FailErrno("replace " + name);
  SB_TRY(Fd fd, OpenInside(dir, name, O_WRONLY | O_CREAT | O_EXCL, mode));
  SB_TRYV(WriteAll(fd.get(), bytes));
  if (::fchmod(fd.get(), mode) != 0) return FailErrno("chmod " + name);
  return {};
}

Result<std::vector<std::string>> ListDir(int dir) {
  int copy = ::openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (copy < 0) return FailErrno("open directory");
  std::unique_ptr<DIR, DirCloser> d(::fdopendir(copy));
  if (!d) {
    int err = errno;
    ::close(copy);
    return FailErrno("read directory", err);
  }
  std::vector<std::string> names;
  errno = 0;
  while (dirent* e = ::readdir(d.get())) {
    if (!IsDots(e->d_name)) names.emplace_back(e->d_name);
  }
  if (errno != 0) return FailErrno("read directory");
  return names;
}

Result<> RemoveTree(int parent, const std::string& name) {
  if (::unlinkat(parent, name.c_str(), 0) == 0 || errno == ENOENT) return {};
  if (errno != EISDIR && errno != EPERM) return FailErrno("unlink " + name);
  SB_TRY(Fd top, OpenInside(parent, name, O_RDONLY | O_DIRECTORY));
  struct stat st{};
  if (::fstat(top.get(), &st) != 0) return FailErrno("stat " + name);
  for (;;) {
    SB_TRY(bool again, EmptyDir(top.get(), top.get(), st.st_dev, 0));
    if (!again) break;
  }
  if (::unlinkat(parent, name.c_str(), AT_REMOVEDIR) != 0) return FailErrno("rmdir " + name);
  return {};
}

}  // namespace sandbar::os
