#include "guest/extract.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace sandbar::guest {
namespace {

Result<> MakeParents(const std::string& path) {
  size_t slash = path.rfind('/');
  if (slash == std::string::npos || slash == 0) return {};
  return MakeDirectories(path.substr(0, slash));
}

Result<Fd> Create(const std::string& path) {
  struct stat st{};
  // Opening a FIFO or a device for writing can have effects even when the open then fails.
  if (::stat(path.c_str(), &st) == 0 && !S_ISREG(st.st_mode)) {
    if (S_ISDIR(st.st_mode)) return FailErrno("write " + path, EISDIR);
    return FailErrno("not a regular file: " + path, ENXIO);
  }
  constexpr int kFlags = O_WRONLY | O_CREAT | O_TRUNC | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  Fd fd(::open(path.c_str(), kFlags, 0600));
  if (!fd && errno == ETXTBSY && ::unlink(path.c_str()) == 0) {
    // A program that is running right now: it keeps its old file, the name gets the new one.
    fd = Fd(::open(path.c_str(), kFlags | O_EXCL, 0600));
  }
  if (!fd) return FailErrno("write " + path);
  if (::fstat(fd.get(), &st) != 0 || !S_ISREG(st.st_mode)) return FailErrno("not a regular file: " + path, ENXIO);
  return fd;
}

}  // namespace

Result<> MakeDirectories(const std::string& path) {
  struct stat st{};
  if (::stat(path.c_str(), &st) == 0 && S_ISDIR(st.st_mode)) return {};
  for (size_t end = 0; end != std::string::npos;) {
    end = path.find('/', end + 1);
    std::string part = path.substr(0, end);
    if (::mkdir(part.c_str(), 0777) == 0) continue;
    int err = errno;
    // "There already" has many spellings (EEXIST, EROFS, EACCES on a parent): what counts is whether it is there.
    if (::stat(part.c_str(), &st) == 0 && S_ISDIR(st.st_mode)) continue;
    return FailErrno("create directory " + part, err);
  }
  return {};
}

namespace {

// A link takes the place of a file or link of that name, never that of a directory.
Result<> MakeLink(const wire::TarEntry& entry) {
  if (::symlink(entry.target.c_str(), entry.name.c_str()) == 0) return {};
  if (errno == ENOENT) {
    SB_TRYV(MakeParents(entry.name));
    if (::symlink(entry.target.c_str(), entry.name.c_str()) == 0) return {};
  }
  if (errno == EEXIST && ::unlink(entry.name.c_str()) == 0 && ::symlink(entry.target.c_str(), entry.name.c_str()) == 0)
    return {};
  return FailErrno("make the link " + entry.name);
}

Result<> SetTime(const wire::TarEntry& entry) {
  const timespec times[2] = {{0, UTIME_OMIT}, {entry.mtime, 0}};
  if (!entry.mtime_given || ::utimensat(AT_FDCWD, entry.name.c_str(), times, AT_SYMLINK_NOFOLLOW) == 0) return {};
  // A file of somebody else that the user may write keeps its own time.
  if (errno == EPERM) return {};
  return FailErrno("set the time of " + entry.name);
}

}  // namespace

Result<> Extractor::OnEntry(const wire::TarEntry& entry) {
  entry_ = entry;
  const std::string& name = entry_.name;
  if (entry.kind == wire::TarEntry::Kind::kSymlink) return MakeLink(entry);
  if (entry.directory) {
    if (name.empty()) return {};
    struct stat st{};
    bool existed = ::stat(name.c_str(), &st) == 0;
    SB_TRYV(MakeDirectories(name));
    if (!existed) made_.push_back(entry);
    return {};
  }
  auto made = Create(name);
  if (!made && made.error().sys_errno == ENOENT) {
    SB_TRYV(MakeParents(name));
    made = Create(name);
  }
  SB_TRY(file_, std::move(made));
  // A file of somebody else that the user may write keeps its mode.
  if (::fchmod(file_.get(), entry.mode) != 0 && errno != EPERM) return FailErrno("set mode of " + name);
  return {};
}

Result<> Extractor::OnData(std::string_view bytes) {
  while (!bytes.empty()) {
    ssize_t n = ::write(file_.get(), bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FailErrno("write " + entry_.name);
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return {};
}

Result<> Extractor::OnEntryEnd() {
  // close() is where a network or quota file system may still say no.
  int fd = file_.Release();
  if (fd >= 0 && ::close(fd) != 0 && errno != EINTR) return FailErrno("write " + entry_.name);
  return entry_.directory ? Result<>{} : SetTime(entry_);
}

Result<> Extractor::Finish() {
  for (auto it = made_.rbegin(); it != made_.rend(); ++it) {
    SB_TRYV(SetTime(*it));
    if (::chmod(it->name.c_str(), it->mode) != 0) return FailErrno("set mode of " + it->name);
  }
  return {};
}

}  // namespace sandbar::guest
