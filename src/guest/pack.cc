#include "guest/pack.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <map>

#include "base/fd.h"
#include "os/openat.h"
#include "os/overlay_view.h"
#include "wire/tree.h"

namespace sandbar::guest {
namespace {

constexpr size_t kChunk = 60 << 10;
constexpr size_t kMaxAttribute = 64 << 10;

using wire::TreeEntry;
using wire::TreeKind;

std::string Attribute(const std::string& by_fd, const char* name) {
  std::string value(kMaxAttribute, '\0');
  ssize_t n = ::getxattr(by_fd.c_str(), name, value.data(), value.size());
  value.resize(n < 0 ? 0 : static_cast<size_t>(n));
  return value;
}

// An fd that was opened for nothing but its name has no attributes of its own.
std::string ByFd(int fd) {
  return "/proc/self/fd/" + std::to_string(fd);
}

class Packer {
 public:
  explicit Packer(const PackOut* out) : out_(*out) {}

  Result<> Written(int upper, int merged, const std::string& path) {
    SB_TRY(auto names, os::ListDir(upper));
    for (const std::string& name : names) {
      struct stat st{};
      if (::fstatat(upper, name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) return FailErrno("stat " + name);
      const std::string at = path.empty() ? name : path + "/" + name;
      if (os::IsWhiteout(st)) {
        TreeEntry gone;
        gone.kind = TreeKind::kDeleted;
        gone.path = at;
        SB_TRYV(Put(wire::EncodeTreeEntry(gone)));
      } else if (!S_ISDIR(st.st_mode)) {
        SB_TRYV(Leaf(merged, name, at));
      } else {
        SB_TRY(Fd own, os::OpenInside(upper, name, O_RDONLY | O_DIRECTORY));
        SB_TRY(Fd shown, os::OpenInside(merged, name, O_RDONLY | O_DIRECTORY));
        // What was moved here, or made anew: all that is to be seen in it is its own.
        const bool fresh =
            Attribute(ByFd(own.get()), os::kOpaque) == "y" || !Attribute(ByFd(own.get()), os::kRedirect).empty();
        SB_TRYV(Directory(shown.get(), at, fresh));
        SB_TRYV(fresh ? All(shown.get(), at) : Written(own.get(), shown.get(), at));
      }
    }
    return {};
  }

  Result<> All(int dir, const std::string& path) {
    SB_TRY(auto names, os::ListDir(dir));
    for (const std::string& name : names) {
      struct stat st{};
      if (::fstatat(dir, name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) return FailErrno("stat " + name);
      const std::string at = path.empty() ? name : path + "/" + name;
      if (!S_ISDIR(st.st_mode)) {
        SB_TRYV(Leaf(dir, name, at));
        continue;
      }
      SB_TRY(Fd below, os::OpenInside(dir, name, O_RDONLY | O_DIRECTORY));
      SB_TRYV(Directory(below.get(), at, true));
      SB_TRYV(All(below.get(), at));
    }
    return {};
  }

  Result<> Directory(int dir, const std::string& path, bool fresh) {
    TreeEntry entry;
    entry.kind = TreeKind::kDirectory;
    entry.path = path;
    entry.fresh = fresh;
    SB_TRYV(Describe(dir, entry));
    return Put(wire::EncodeTreeEntry(entry));
  }

  Result<> End() {
    SB_TRYV(Put(wire::EncodeTreeEntry({})));
    return Flush(0);
  }

 private:
  static Result<struct stat> Describe(int fd, TreeEntry& entry) {
    struct stat st{};
    if (::fstat(fd, &st) != 0) return FailErrno("stat " + entry.path);
    entry.mode = st.st_mode & 07777;
    entry.uid = st.st_uid;
    entry.gid = st.st_gid;
    entry.mtime_s = st.st_mtim.tv_sec;
    entry.mtime_ns = static_cast<uint32_t>(st.st_mtim.tv_nsec);
    if (S_ISLNK(st.st_mode)) return st;
    std::string names(64 << 10, '\0');
    ssize_t n = ::listxattr(ByFd(fd).c_str(), names.data(), names.size());
    if (n < 0 && errno != ENOTSUP) return FailErrno("attributes of " + entry.path);
    std::string_view rest(names.data(), n < 0 ? 0 : static_cast<size_t>(n));
    while (!rest.empty()) {
      std::string name(rest.substr(0, rest.find('\0')));
      rest.remove_prefix(name.size() + 1);
      // The kernel's own bookkeeping is not the file's.
      if (!name.starts_with("trusted.")) entry.attributes.emplace_back(name, Attribute(ByFd(fd), name.c_str()));
    }
    return st;
  }

  // Anything but a directory.
  Result<> Leaf(int dir, const std::string& name, const std::string& path) {
    SB_TRY(Fd file, os::OpenInside(dir, name, O_PATH));
    TreeEntry entry;
    entry.path = path;
    SB_TRY(struct stat st, Describe(file.get(), entry));
    if (st.st_nlink > 1) {
      auto [first, fresh] = links_.try_emplace({st.st_dev, st.st_ino}, path);
      if (!fresh) {
        entry.kind = TreeKind::kHardLink;
        entry.target = first->second;
        return Put(wire::EncodeTreeEntry(entry));
      }
    }
    if (S_ISREG(st.st_mode)) return File(dir, name, entry);
    if (S_ISLNK(st.st_mode)) {
      std::array<char, wire::kMaxTreePath + 1> text{};
      ssize_t n = ::readlinkat(dir, name.c_str(), text.data(), wire::kMaxTreePath);
      if (n <= 0) return FailErrno("read link " + path);
      entry.target.assign(text.data(), static_cast<size_t>(n));
    }
    // No device node belongs in a guest's tree.
    if (!S_ISLNK(st.st_mode) && !S_ISFIFO(st.st_mode) && !S_ISSOCK(st.st_mode)) return {};
    entry.kind = S_ISLNK(st.st_mode) ? TreeKind::kSymlink : S_ISFIFO(st.st_mode) ? TreeKind::kFifo : TreeKind::kSocket;
    return Put(wire::EncodeTreeEntry(entry));
  }

  Result<> File(int dir, const std::string& name, TreeEntry& entry) {
    SB_TRY(Fd file, os::OpenInside(dir, name, O_RDONLY | O_NONBLOCK | O_NOCTTY));
    struct stat st{};
    if (::fstat(file.get(), &st) != 0) return FailErrno("stat " + entry.path);
    entry.kind = TreeKind::kFile;
    SB_TRYV(Put(wire::EncodeTreeEntry(entry)));
    std::string bytes;
    for (off_t at = 0; at < st.st_size;) {
      off_t data = ::lseek(file.get(), at, SEEK_DATA);
      if (data < 0 && errno == ENXIO) break;  // a hole to the end
      if (data > at) at = data;
      bytes.resize(kChunk);
      ssize_t n = ::pread(file.get(), bytes.data(), bytes.size(), at);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return FailErrno("read " + entry.path);
      if (n == 0) break;
      SB_TRYV(Put(
          wire::EncodeTreePiece(static_cast<uint64_t>(at), std::string_view(bytes).substr(0, static_cast<size_t>(n)))));
      at += n;
    }
    return Put(wire::EncodeTreePiece(static_cast<uint64_t>(st.st_size), ""));
  }

  Result<> Put(std::string_view bytes) {
    buffer_ += bytes;
    return Flush(kChunk);
  }

  Result<> Flush(size_t keep) {
    size_t sent = 0;
    while (buffer_.size() - sent > keep) {
      const size_t n = std::min(kChunk, buffer_.size() - sent);
      SB_TRYV(out_(std::string_view(buffer_).substr(sent, n)));
      sent += n;
    }
    buffer_.erase(0, sent);
    return {};
  }

  const PackOut& out_;
  std::string buffer_;
  std::map<std::pair<dev_t, ino_t>, std::string> links_;  // file -> its first name
};

}  // namespace

Result<> PackWritten(int upper, int merged, const PackOut& out) {
  Packer packer(&out);
  SB_TRYV(packer.Directory(merged, "", false));
  SB_TRYV(packer.Written(upper, merged, ""));
  return packer.End();
}

Result<> PackAll(int dir, const PackOut& out) {
  Packer packer(&out);
  SB_TRYV(packer.Directory(dir, "", false));
  SB_TRYV(packer.All(dir, ""));
  return packer.End();
}

}  // namespace sandbar::guest
