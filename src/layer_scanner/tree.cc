#include "layer_scanner/tree.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <vector>

#include "crypto/sha256_stream.h"
#include "layer_scanner/names.h"
#include "layer_scanner/text.h"
#include "os/openat.h"
#include "os/overlay_view.h"
#include "os/process.h"

namespace sandbar::layer_scanner {
namespace {

constexpr int64_t kPatienceMs = 3'500'000;  // less than the spawner's
constexpr size_t kBlock = 4096;
constexpr size_t kBuffer = 64 * kBlock;
constexpr size_t kShownValue = 64;

char TypeOf(const struct stat& st) {
  if (S_ISDIR(st.st_mode)) return 'd';
  if (S_ISREG(st.st_mode)) return 'f';
  if (S_ISLNK(st.st_mode)) return 'l';
  if (S_ISFIFO(st.st_mode)) return 'p';
  if (S_ISSOCK(st.st_mode)) return 's';
  return os::IsWhiteout(st) ? 'w' : 'x';
}

std::string Describe(const struct stat& st) {
  // A directory's size is the file system's own business.
  return fmt::format("{} {:o} {}:{} {} {}.{:09}", TypeOf(st), st.st_mode & 07777, st.st_uid, st.st_gid,
                     S_ISDIR(st.st_mode) ? 0 : st.st_size, st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
}

Result<std::string> Xattrs(int fd) {
  // Most have none: asked before there is space for any.
  ssize_t n = ::flistxattr(fd, nullptr, 0);
  if (n == 0) return std::string();
  std::string names(64 << 10, '\0');
  if (n > 0) n = ::flistxattr(fd, names.data(), names.size());
  if (n < 0) return errno == ENOTSUP ? Result<std::string>("") : FailErrno("list attributes");
  names.resize(static_cast<size_t>(n));
  std::vector<std::string> sorted;
  for (size_t at = 0; at < names.size(); at += sorted.back().size() + 1) sorted.emplace_back(names.c_str() + at);
  std::ranges::sort(sorted);
  std::string out, value(64 << 10, '\0');
  for (const std::string& name : sorted) {
    // Overlay's notes about where a file came from are not part of what it is.
    if (name.starts_with(os::kOverlayPrefix) && name != os::kOpaque && name != os::kRedirect) continue;
    ssize_t size = ::fgetxattr(fd, name.c_str(), value.data(), value.size());
    if (size < 0) return FailErrno("read attribute " + Escape(name));
    std::string_view text(value.data(), static_cast<size_t>(size));
    crypto::Sha256Stream digest;
    digest.Update(text);
    out += " " + Escape(name) + "=" + (text.size() <= kShownValue ? Escape(text) : "sha256:" + digest.Hex());
  }
  return out;
}

bool AllZero(std::string_view block) {
  return std::ranges::all_of(block, [](char c) { return c == 0; });
}

}  // namespace

Result<ScanLimits> ScanLimits::Of(int layer) {
  struct statvfs disk{};
  if (::fstatvfs(layer, &disk) != 0) return FailErrno("statvfs");
  ScanLimits limits;
  // Files that share their blocks can show far more than that.
  constexpr uint64_t kSlack = 1ULL << 30;
  limits.read_bytes = static_cast<uint64_t>(disk.f_blocks - disk.f_bfree) * disk.f_frsize + kSlack;
  limits.until_ms = os::BootTimeMs() + kPatienceMs;
  return limits;
}

Result<> Tree::Scan() {
  Fd root(::openat(root_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!root) return FailErrno("open the layer");
  return Directory(root.get(), "/", 0);
}

Result<> Tree::Directory(int dir, const std::string& path, size_t depth) {
  if (depth > os::kMaxDepth) return Fail(Code::kTooLarge, "a directory lies too deep");
  struct stat st{};
  if (::fstat(dir, &st) != 0) return FailErrno("stat " + path);
  SB_TRY(std::string attributes, Xattrs(dir));
  SB_TRYV(sink_({path, Describe(st) + " -" + attributes, ""}));
  if (os::BootTimeMs() > limits_.until_ms) return Fail(Code::kTooLarge, "it takes too long to read");
  NameList names;
  auto listed = names.Read(dir, limits_.name_bytes - names_);
  if (!listed && listed.error().code != Code::kIo) return listed;
  if (!listed) return sink_({path, "", listed.error().message});
  names_ += names.bytes();
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string name(names[i]);
    SB_TRYV(Child(dir, name, (depth == 0 ? "" : path) + "/" + Escape(name), depth));
  }
  names_ -= names.bytes();
  return {};
}

Result<> Tree::Child(int dir, const std::string& name, const std::string& path, size_t depth) {
  struct stat st{};
  if (::fstatat(dir, name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) return FailErrno("stat " + path);
  if (S_ISDIR(st.st_mode)) {
    Fd child = os::OpenDirAt(dir, name);
    if (!child) return FailErrno("open " + path);
    return Directory(child.get(), path, depth + 1);
  }
  ++files_;
  if (S_ISREG(st.st_mode)) {
    auto text = File(dir, name, st);
    if (!text && text.error().code != Code::kIo) return std::unexpected(std::move(text).error().Context(path));
    return text ? sink_({path, *std::move(text), ""}) : sink_({path, "", text.error().message});
  }
  std::string text = Describe(st);
  if (S_ISLNK(st.st_mode)) {
    std::array<char, 4097> target{};
    ssize_t n = ::readlinkat(dir, name.c_str(), target.data(), target.size());
    if (n < 0) return FailErrno("read link " + path);
    text += " " + Escape({target.data(), static_cast<size_t>(n)});
  }
  return sink_({path, text, ""});
}

Result<std::string> Tree::File(int dir, const std::string& name, const struct stat& st) {
  Fd fd(::openat(dir, name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd) return FailErrno("open");
  SB_TRY(Digest digest, DigestOf(fd.get(), st));
  SB_TRY(std::string attributes, Xattrs(fd.get()));
  return Describe(st) + (digest.sparse ? " sparse:" : " ") + crypto::Sha256Stream::ToHex(digest.bytes) + attributes;
}

// A file is read once, however many names it has.
Result<Tree::Digest> Tree::DigestOf(int fd, const struct stat& st) {
  auto known = links_.find(st.st_ino);
  if (known != links_.end()) {
    const Digest digest = known->second.digest;
    if (--known->second.left == 0) links_.erase(known);
    return digest;
  }
  SB_TRY(Digest digest, Content(fd, st));
  bytes_ += static_cast<uint64_t>(st.st_blocks) * 512;
  if (st.st_nlink < 2) return digest;
  if (links_.size() >= limits_.links) return Fail(Code::kTooLarge, "too many files have several names");
  links_[st.st_ino] = {digest, static_cast<uint32_t>(st.st_nlink - 1)};
  return digest;
}

// A file with holes has the digest of its blocks that are not zero, each behind its offset: reading the holes of a file
// that claims to have exabytes would never end.
Result<Tree::Digest> Tree::Content(int fd, const struct stat& st) {
  const bool sparse = ::lseek(fd, 0, SEEK_HOLE) < st.st_size;
  crypto::Sha256Stream digest;
  buffer_.resize(kBuffer);
  off_t at = 0;
  while (at < st.st_size) {
    if (os::BootTimeMs() > limits_.until_ms) return Fail(Code::kTooLarge, "it takes too long to read");
    size_t want = buffer_.size();
    if (sparse) {
      off_t data = ::lseek(fd, at, SEEK_DATA);
      if (data < 0 && errno == ENXIO) break;
      const off_t hole = data < 0 ? data : ::lseek(fd, data, SEEK_HOLE);
      if (hole < 0) return FailErrno("seek");
      // Whole blocks, and nothing of the holes between them.
      constexpr auto kSize = static_cast<off_t>(kBlock);
      at = data / kSize * kSize;
      want = std::min(want, static_cast<size_t>((hole - at + kSize - 1) / kSize * kSize));
    }
    ssize_t n = ::pread(fd, buffer_.data(), want, at);
    if (n < 0) return FailErrno("read");
    if (n == 0) return Fail(Code::kIo, "the file is shorter than its size");
    std::string_view got(buffer_.data(), static_cast<size_t>(n));
    read_ += got.size();
    if (read_ > limits_.read_bytes) return Fail(Code::kTooLarge, "there is more to read than the disk holds");
    if (!sparse) digest.Update(got);
    for (size_t i = 0; sparse && i < got.size(); i += kBlock) {
      std::string_view block = got.substr(i, kBlock);
      if (AllZero(block)) continue;
      digest.Update(std::to_string(at + static_cast<off_t>(i)) + ":");
      digest.Update(block);
    }
    at += n;
  }
  return Digest{digest.End(), sparse};
}

}  // namespace sandbar::layer_scanner
