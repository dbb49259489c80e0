#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>

#include "base/fd.h"
#include "guest/file_worker.h"
#include "guest/pack.h"
#include "os/openat.h"
#include "wire/tree.h"

namespace sandbar::guest {
namespace {

constexpr uint32_t kNobody = 65534;  // for ids that do not exist in this machine

using wire::TreeEntry;
using wire::TreeKind;

timespec TimeOf(const TreeEntry& e) {
  return {static_cast<time_t>(e.mtime_s), static_cast<long>(e.mtime_ns)};
}

class Unpacker final : public wire::TreeSink {
 public:
  static Result<Unpacker> Into(const std::string& path) {
    Unpacker u;
    SB_TRY(u.top_, os::OpenPath(path, O_RDONLY | O_DIRECTORY));
    struct stat st{};
    if (::fstat(u.top_.get(), &st) != 0) return FailErrno("stat " + path);
    u.device_ = st.st_dev;
    return u;
  }

  Result<> OnEntry(const TreeEntry& e) override {
    file_.Reset();
    if (e.path.empty()) return Describe(top_.get(), "", e);
    SB_TRY(Fd parent, Parent(e.path));
    // Behind a mount of this machine's own: not a place of the tree.
    if (!parent) return {};
    const std::string name = e.path.substr(e.path.rfind('/') + 1);
    struct stat st{};
    const bool there = ::fstatat(parent.get(), name.c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0;
    if (there && S_ISDIR(st.st_mode) && st.st_dev != device_) return {};
    const bool stays = there && e.kind == TreeKind::kDirectory && S_ISDIR(st.st_mode) && !e.fresh;
    if (there && !stays) SB_TRYV(os::RemoveTree(parent.get(), name));
    return Make(parent.get(), name, e, stays);
  }

  Result<> OnPiece(uint64_t offset, std::string_view bytes) override {
    while (file_ && !bytes.empty()) {
      ssize_t n = ::pwrite(file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return FailErrno("write " + current_.path);
      bytes.remove_prefix(static_cast<size_t>(n));
      offset += static_cast<uint64_t>(n);
    }
    return {};
  }

  Result<> OnFileEnd(uint64_t size) override {
    if (!file_) return {};
    if (::ftruncate(file_.get(), static_cast<off_t>(size)) != 0) return FailErrno("size of " + current_.path);
    return Describe(file_.get(), "", current_);
  }

  // What was put into them changed their times.
  Result<> Finish() {
    for (auto it = directories_.rbegin(); it != directories_.rend(); ++it) {
      SB_TRY(Fd dir, os::OpenInside(top_.get(), it->first, O_RDONLY | O_DIRECTORY));
      std::array<timespec, 2> times = {it->second, it->second};
      if (::futimens(dir.get(), times.data()) != 0) return FailErrno("set the time of " + it->first);
    }
    return {};
  }

 private:
  Result<Fd> Parent(const std::string& path) const {
    const size_t slash = path.rfind('/');
    auto dir =
        os::OpenInside(top_.get(), slash == std::string::npos ? "." : path.substr(0, slash), O_RDONLY | O_DIRECTORY);
    struct stat st{};
    if (dir && ::fstat(dir->get(), &st) != 0) return FailErrno("stat " + path);
    if (dir && st.st_dev != device_) return Fd();
    return dir;
  }

  Result<> Make(int parent, const std::string& name, const TreeEntry& e, bool stays) {
    switch (e.kind) {
      case TreeKind::kDirectory: {
        if (!stays && ::mkdirat(parent, name.c_str(), 0700) != 0) return FailErrno("make " + e.path);
        SB_TRY(Fd dir, os::OpenInside(parent, name, O_RDONLY | O_DIRECTORY));
        directories_.emplace_back(e.path, TimeOf(e));
        return Describe(dir.get(), "", e);
      }
      case TreeKind::kFile: {
        SB_TRY(file_, os::OpenInside(parent, name, O_WRONLY | O_CREAT | O_EXCL, 0600));
        current_ = e;
        return {};
      }
      case TreeKind::kHardLink: {
        SB_TRY(Fd from, Parent(e.target));
        const std::string first = e.target.substr(e.target.rfind('/') + 1);
        if (from && ::linkat(from.get(), first.c_str(), parent, name.c_str(), 0) != 0)
          return FailErrno("link " + e.path);
        return {};
      }
      case TreeKind::kSymlink:
        if (::symlinkat(e.target.c_str(), parent, name.c_str()) != 0) return FailErrno("link " + e.path);
        return Describe(parent, name, e);
      case TreeKind::kFifo:
      case TreeKind::kSocket: {
        const mode_t type = e.kind == TreeKind::kFifo ? S_IFIFO : S_IFSOCK;
        if (::mknodat(parent, name.c_str(), type | 0600, 0) != 0) return FailErrno("make " + e.path);
        return Describe(parent, name, e);
      }
      case TreeKind::kDeleted:
      case TreeKind::kEnd:
        break;
    }
    return {};
  }

  // Owner before mode: chown clears the set-id bits. Of `fd` itself, or of `name` in it.
  Result<> Describe(int fd, const std::string& name, const TreeEntry& e) const {
    const int flags = name.empty() ? AT_EMPTY_PATH : AT_SYMLINK_NOFOLLOW;
    auto own = [&](uint32_t uid, uint32_t gid) { return ::fchownat(fd, name.c_str(), uid, gid, flags) == 0; };
    if (!own(e.uid, e.gid) && (errno != EINVAL || !own(kNobody, kNobody))) return FailErrno("owner of " + e.path);
    if (e.kind != TreeKind::kSymlink &&
        (name.empty() ? ::fchmod(fd, e.mode) : ::fchmodat(fd, name.c_str(), e.mode, 0)) != 0)
      return FailErrno("mode of " + e.path);
    for (const auto& [key, value] : e.attributes) {
      if (!name.empty()) break;
      if (::fsetxattr(fd, key.c_str(), value.data(), value.size(), 0) != 0 && errno != ENOTSUP && errno != EPERM)
        return FailErrno("attribute " + key + " of " + e.path);
    }
    std::array<timespec, 2> times = {TimeOf(e), TimeOf(e)};
    const int set =
        name.empty() ? ::futimens(fd, times.data()) : ::utimensat(fd, name.c_str(), times.data(), AT_SYMLINK_NOFOLLOW);
    if (set != 0) return FailErrno("time of " + e.path);
    return {};
  }

  Fd top_, file_;
  dev_t device_ = 0;
  TreeEntry current_;
  std::vector<std::pair<std::string, timespec>> directories_;
};

}  // namespace

Result<> UnpackFrom(int in, const std::string& path) {
  SB_TRY(Unpacker unpacker, Unpacker::Into(path));
  wire::TreeReader reader(&unpacker);
  std::array<char, kWorkerChunk> buffer{};
  for (;;) {
    ssize_t n = ::read(in, buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FailErrno("read from the agent");
    if (n == 0) break;
    SB_TRYV(reader.Feed(std::string_view(buffer.data(), static_cast<size_t>(n))));
  }
  SB_TRYV(reader.Finish());
  return unpacker.Finish();
}

}  // namespace sandbar::guest
