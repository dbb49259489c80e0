#include "walker/tree.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <vector>

#include "os/openat.h"
#include "os/overlay_view.h"
#include "walker/sha256.h"
#include "walker/text.h"

namespace sandbar::walker {
namespace {

constexpr uint64_t kMaxRead = 1ULL << 40;  // cloned files can show far more than the disk holds
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
    Sha256 digest;
    digest.Update(text);
    out += " " + Escape(name) + "=" + (text.size() <= kShownValue ? Escape(text) : "sha256:" + digest.Hex());
  }
  return out;
}

bool AllZero(std::string_view block) {
  return std::ranges::all_of(block, [](char c) { return c == 0; });
}

}  // namespace

Result<> Tree::Walk() {
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
  auto listed = os::ListDir(dir);
  if (!listed) return sink_({path, "", listed.error().message});
  std::vector<std::string> names = *std::move(listed);
  std::vector<std::pair<std::string, std::string>> sorted;
  for (std::string& name : names) {
    std::string escaped = Escape(name);
    sorted.emplace_back(std::move(escaped), std::move(name));
  }
  names.clear();
  std::ranges::sort(sorted);
  for (const auto& [escaped, name] : sorted) SB_TRYV(Child(dir, name, (depth == 0 ? "" : path) + "/" + escaped, depth));
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
  auto known = links_.find(st.st_ino);
  if (known != links_.end()) {
    std::string text = known->second.text;
    if (--known->second.left == 0) links_.erase(known);
    return text;
  }
  Fd fd(::openat(dir, name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd) return FailErrno("open");
  SB_TRY(std::string digest, Content(fd.get(), st));
  SB_TRY(std::string attributes, Xattrs(fd.get()));
  bytes_ += static_cast<uint64_t>(st.st_blocks) * 512;
  std::string text = Describe(st) + " " + digest + attributes;
  if (st.st_nlink > 1) links_[st.st_ino] = {text, st.st_nlink - 1};
  return text;
}

// A file with holes has the digest of its blocks that are not zero, each behind its offset: reading the holes of a file
// that claims to have exabytes would never end.
Result<std::string> Tree::Content(int fd, const struct stat& st) {
  const bool sparse = ::lseek(fd, 0, SEEK_HOLE) < st.st_size;
  Sha256 digest;
  buffer_.resize(kBuffer);
  off_t at = 0;
  while (at < st.st_size) {
    if (sparse) {
      off_t data = ::lseek(fd, at, SEEK_DATA);
      if (data < 0 && errno == ENXIO) break;
      if (data < 0) return FailErrno("seek");
      at = data / static_cast<off_t>(kBlock) * static_cast<off_t>(kBlock);
    }
    ssize_t n = ::pread(fd, buffer_.data(), buffer_.size(), at);
    if (n < 0) return FailErrno("read");
    if (n == 0) return Fail(Code::kIo, "the file is shorter than its size");
    std::string_view got(buffer_.data(), static_cast<size_t>(n));
    read_ += got.size();
    if (read_ > kMaxRead) return Fail(Code::kTooLarge, "there is too much to read");
    if (!sparse) digest.Update(got);
    for (size_t i = 0; sparse && i < got.size(); i += kBlock) {
      std::string_view block = got.substr(i, kBlock);
      if (AllZero(block)) continue;
      digest.Update(std::to_string(at + static_cast<off_t>(i)) + ":");
      digest.Update(block);
    }
    at += n;
  }
  return (sparse ? "sparse:" : "") + digest.Hex();
}

}  // namespace sandbar::walker
