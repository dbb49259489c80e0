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

Result<> Extractor::OnEntry(const wire::TarEntry& entry) {
  name_ = entry.name;
  if (entry.directory) {
    if (name_.empty()) return {};
    struct stat st{};
    bool existed = ::stat(name_.c_str(), &st) == 0;
    SB_TRYV(MakeDirectories(name_));
    if (!existed && ::chmod(name_.c_str(), entry.mode) != 0) return FailErrno("set mode of " + name_);
    return {};
  }
  auto made = Create(name_);
  if (!made && made.error().sys_errno == ENOENT) {
    SB_TRYV(MakeParents(name_));
    made = Create(name_);
  }
  SB_TRY(file_, std::move(made));
  // A file of somebody else that the user may write keeps its mode.
  if (::fchmod(file_.get(), entry.mode) != 0 && errno != EPERM) return FailErrno("set mode of " + name_);
  return {};
}

Result<> Extractor::OnData(std::string_view bytes) {
  while (!bytes.empty()) {
    ssize_t n = ::write(file_.get(), bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FailErrno("write " + name_);
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return {};
}

Result<> Extractor::OnEntryEnd() {
  // close() is where a network or quota file system may still say no.
  int fd = file_.Release();
  if (fd >= 0 && ::close(fd) != 0 && errno != EINTR) return FailErrno("write " + name_);
  return {};
}

}  // namespace sandbar::guest
