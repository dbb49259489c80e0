#include "guest/file_calls.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <set>

#include "base/ids.h"
#include "protocol/file_entry.h"

namespace sandbar::guest {
namespace {

using protocol::FileEntry;
using protocol::FileType;

Result<> CheckPath(const std::string& path) {
  if (path.empty() || path.find('\0') != std::string::npos) return FailErrno("open", ENOENT);
  return {};
}

FileType TypeOf(mode_t mode) {
  switch (mode & S_IFMT) {
    case S_IFREG:
      return FileType::kFile;
    case S_IFDIR:
      return FileType::kDirectory;
    case S_IFLNK:
      return FileType::kSymlink;
    case S_IFIFO:
      return FileType::kPipe;
    case S_IFSOCK:
      return FileType::kSocket;
    case S_IFBLK:
      return FileType::kBlockDevice;
    case S_IFCHR:
      return FileType::kCharacterDevice;
    default:
      return FileType::kOther;
  }
}

constexpr int64_t kSecond = 1'000'000'000;

// A time that does not fit, before 1678 or after 2261, becomes the nearest that does.
int64_t Nanoseconds(const struct timespec& t) {
  constexpr int64_t kMost = INT64_MAX / kSecond - 1;
  return std::clamp<int64_t>(t.tv_sec, -kMost, kMost) * kSecond + t.tv_nsec;
}

struct timespec ToTime(int64_t ns) {
  const bool before = ns % kSecond < 0;
  return {.tv_sec = ns / kSecond - (before ? 1 : 0), .tv_nsec = ns % kSecond + (before ? kSecond : 0)};
}

// Without slashes at the end, behind which a link would be followed.
std::string Stripped(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

Result<FileEntry> EntryAt(int dir, const std::string& name, bool follow) {
  struct stat st{};
  if (::fstatat(dir, name.c_str(), &st, follow ? 0 : AT_SYMLINK_NOFOLLOW) != 0) return FailErrno("stat " + name);
  FileEntry entry;
  entry.name = name;
  entry.type = TypeOf(st.st_mode);
  entry.size = static_cast<uint64_t>(st.st_size);
  entry.mode = st.st_mode & protocol::kMaxMode;
  entry.uid = st.st_uid;
  entry.gid = st.st_gid;
  entry.links = st.st_nlink;
  entry.accessed_ns = Nanoseconds(st.st_atim);
  entry.modified_ns = Nanoseconds(st.st_mtim);
  if (entry.type != FileType::kSymlink) return entry;
  std::array<char, PATH_MAX> target{};
  const ssize_t n = ::readlinkat(dir, name.c_str(), target.data(), target.size() - 1);
  if (n > 0) entry.target.assign(target.data(), static_cast<size_t>(n));
  return entry;
}

// Data frames of a size that passes without waiting.
class EntryWriter {
 public:
  explicit EntryWriter(FrameOut* out) : out_(out) {}
  Result<> Add(const FileEntry& entry) {
    bytes_ += protocol::EncodeEntry(entry);
    return bytes_.size() < kWorkerChunk ? Result<>{} : Flush();
  }
  Result<> Flush() {
    for (std::string_view rest = bytes_; !rest.empty(); rest.remove_prefix(std::min(rest.size(), kWorkerChunk)))
      SB_TRYV(out_->Send(protocol::Data{out_->stream(), std::string(rest.substr(0, kWorkerChunk))}));
    bytes_.clear();
    return {};
  }

 private:
  FrameOut* out_;
  std::string bytes_;
};

// The first `limit` names after `after`: a directory may have more names than fit the memory.
Result<std::set<std::string>> FirstNames(DIR* dir, const std::string& after, size_t limit) {
  std::set<std::string> names;
  for (;;) {
    errno = 0;
    const dirent* found = ::readdir(dir);
    if (found == nullptr && errno != 0) return FailErrno("read a directory");
    if (found == nullptr) return names;
    std::string name = found->d_name;
    if (name == "." || name == ".." || name <= after) continue;
    if (names.size() == limit && name > *names.rbegin()) continue;
    names.insert(std::move(name));
    if (names.size() > limit) names.erase(std::prev(names.end()));
  }
}

std::string RealPath(const std::string& path) {
  std::unique_ptr<char, decltype(&::free)> real(::realpath(path.c_str(), nullptr), &::free);
  return real ? real.get() : std::string();
}

// Opening a device can have effects, so it looks first; and again after, because the guest can swap the file.
Result<Fd> OpenForWriting(const protocol::WriteFile& request) {
  const std::string& path = request.path;
  struct stat st{};
  const bool exists = ::stat(path.c_str(), &st) == 0;
  if (exists && S_ISDIR(st.st_mode)) return FailErrno("write " + path, EISDIR);
  if (exists && !S_ISREG(st.st_mode)) return FailErrno("not a regular file: " + path, ENXIO);
  const int flags = O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | (request.append ? O_APPEND : 0);
  Fd fd;
  if (request.create) fd = Fd(::open(path.c_str(), flags | O_CREAT | O_EXCL, 0600));
  const bool made = static_cast<bool>(fd);
  if (made && ::fchmod(fd.get(), request.mode) != 0) return FailErrno("set the mode of " + path);
  if (!made && request.create && (errno != EEXIST || request.exclusive)) return FailErrno("write " + path);
  // A link to nowhere is something that is there; opening it makes what it shows.
  if (!made) fd = Fd(::open(path.c_str(), flags | (request.create && !exists ? O_CREAT : 0), request.mode));
  if (!fd) return FailErrno("write " + path);
  if (::fstat(fd.get(), &st) != 0) return FailErrno("stat " + path);
  if (!S_ISREG(st.st_mode)) return FailErrno("not a regular file: " + path, ENXIO);
  if (request.truncate && ::ftruncate(fd.get(), 0) != 0) return FailErrno("truncate " + path);
  return fd;
}

Result<> WriteAll(int fd, std::string_view bytes, uint64_t* at, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(*at));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FailErrno("write " + path);
    bytes.remove_prefix(static_cast<size_t>(n));
    *at += static_cast<uint64_t>(n);
  }
  return {};
}

Result<> CopyInto(int in, int fd, uint64_t offset, const std::string& path) {
  std::array<char, kWorkerChunk> buffer{};
  uint64_t at = offset;
  for (;;) {
    const ssize_t n = ::read(in, buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FailErrno("read from the agent");
    if (n == 0) return {};
    SB_TRYV(WriteAll(fd, {buffer.data(), static_cast<size_t>(n)}, &at, path));
  }
}

// A hidden file beside the one whose place it takes at the end. Whoever gives up kills the worker, so another process
// waits to remove what the worker leaves behind. Both hold the directory, which may be renamed meanwhile.
class Draft {
 public:
  explicit Draft(const std::string& path) : path_(path), name_(NewLabel(".sandbar-", 12)) {
    const size_t slash = path.rfind('/');
    base_ = path.substr(slash == std::string::npos ? 0 : slash + 1);
    parent_ = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  }
  Draft(const Draft&) = delete;
  Draft& operator=(const Draft&) = delete;
  ~Draft() {
    if (fd_ && !placed_) ::unlinkat(dir_.get(), name_.c_str(), 0);
    // The byte says that nothing is left to remove.
    if (remover_) [[maybe_unused]]
      const ssize_t told = ::write(remover_.get(), "", 1);
  }
  // Nobody else reads it before it is in its place.
  Result<> Open() {
    dir_ = Fd(::open(parent_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!dir_) return FailErrno("write " + path_);
    SB_TRYV(StartRemover());
    fd_ = Fd(::openat(dir_.get(), name_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!fd_) return FailErrno("write " + path_);
    return {};
  }
  int fd() const { return fd_.get(); }
  Result<> Place(bool exclusive) {
    const int dir = dir_.get();
    // A link does not replace what came meanwhile.
    if (exclusive) {
      if (::linkat(dir, name_.c_str(), dir, base_.c_str(), 0) != 0) return FailErrno("write " + path_);
      return {};
    }
    if (::renameat(dir, name_.c_str(), dir, base_.c_str()) != 0) return FailErrno("write " + path_);
    placed_ = true;
    return {};
  }

 private:
  Result<> StartRemover() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) return FailErrno("pipe");
    Fd read(ends[0]);
    remover_ = Fd(ends[1]);
    const pid_t pid = ::fork();
    if (pid < 0) return FailErrno("fork");
    if (pid > 0) return {};
    char told = 0;
    const bool ready = ::dup2(read.get(), 0) == 0 && ::dup2(dir_.get(), 1) == 1 && ::close_range(2, kLastFd, 0) == 0;
    if (ready && ::read(0, &told, 1) == 0) ::unlinkat(1, name_.c_str(), 0);
    ::_exit(0);
  }

  std::string path_, parent_, base_, name_;
  Fd dir_, fd_, remover_;
  bool placed_ = false;
};

// The file that is replaced leaves its permissions and, where the worker may, its owner.
Result<> WriteWhole(int in, const protocol::WriteFile& request) {
  std::string path = request.path;
  struct stat former{};
  bool exists = ::stat(path.c_str(), &former) == 0;
  if (!exists && errno != ENOENT) return FailErrno("write " + path);
  if (exists && S_ISDIR(former.st_mode)) return FailErrno("write " + path, EISDIR);
  if (exists && !S_ISREG(former.st_mode)) return FailErrno("not a regular file: " + path, ENXIO);
  if (exists && request.exclusive) return FailErrno("write " + path, EEXIST);
  if (!exists && !request.create) return FailErrno("write " + path, ENOENT);
  // A file without the right to write stays as it is, though its directory would let it be replaced.
  if (exists && ::faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) != 0) return FailErrno("write " + path);
  if (struct stat st{}; ::lstat(path.c_str(), &st) == 0 && S_ISLNK(st.st_mode)) {
    if (request.exclusive) return FailErrno("write " + path, EEXIST);
    path = RealPath(path);
    if (path.empty()) return FailErrno("follow the link " + request.path);
  }
  Draft draft(path);
  SB_TRYV(draft.Open());
  SB_TRYV(CopyInto(in, draft.fd(), 0, path));
  // As it is by now: somebody may have changed it during the upload. Nobody gets new bytes that run with the rights of
  // the former ones.
  exists = ::stat(path.c_str(), &former) == 0 && S_ISREG(former.st_mode);
  if (exists) [[maybe_unused]]
    const int owned = ::fchown(draft.fd(), former.st_uid, former.st_gid);
  const mode_t mode = exists ? former.st_mode & 01777 : request.mode;
  if (::fchmod(draft.fd(), mode) != 0) return FailErrno("set the mode of " + path);
  return draft.Place(request.exclusive);
}

Result<> Truncate(const protocol::SetAttributes& request) {
  struct stat st{};
  if (::stat(request.path.c_str(), &st) != 0) return FailErrno("stat " + request.path);
  if (S_ISDIR(st.st_mode)) return FailErrno("set the size of " + request.path, EISDIR);
  if (!S_ISREG(st.st_mode)) return FailErrno("not a regular file: " + request.path, ENXIO);
  if (::truncate(request.path.c_str(), static_cast<off_t>(*request.size)) != 0)
    return FailErrno("set the size of " + request.path);
  return {};
}

}  // namespace

Result<> ListEntries(const protocol::ListDir& request, FrameOut& out) {
  SB_TRYV(CheckPath(request.path));
  Fd fd(::open(request.path.c_str(), O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC));
  if (!fd) return FailErrno("list " + request.path);
  std::unique_ptr<DIR, decltype(&::closedir)> dir(::fdopendir(fd.Release()), &::closedir);
  if (!dir) return FailErrno("list " + request.path);
  EntryWriter writer(&out);
  // Names that were removed meanwhile make room for others, so that fewer than the limit means the end.
  std::string after = request.after;
  for (size_t left = request.limit; left > 0;) {
    ::rewinddir(dir.get());
    SB_TRY(auto names, FirstNames(dir.get(), after, left));
    const bool last = names.size() < left;
    for (const std::string& name : names) {
      after = name;
      auto entry = EntryAt(::dirfd(dir.get()), name, false);
      if (!entry && entry.error().sys_errno == ENOENT) continue;
      if (!entry) return std::unexpected(std::move(entry).error());
      SB_TRYV(writer.Add(*entry));
      --left;
    }
    if (last) break;
  }
  return writer.Flush();
}

Result<> StatEntry(const protocol::StatFile& request, FrameOut& out) {
  SB_TRYV(CheckPath(request.path));
  SB_TRY(FileEntry entry, EntryAt(AT_FDCWD, request.path, request.follow));
  if (entry.type == FileType::kSymlink) {
    // The link's own place: only the directories before it are followed.
    const std::string path = Stripped(request.path);
    const size_t slash = path.rfind('/');
    const std::string parent = RealPath(slash == std::string::npos ? "." : path.substr(0, slash + 1));
    if (!parent.empty()) entry.name = (parent == "/" ? "/" : parent + "/") + path.substr(slash + 1);
  } else if (std::string real = RealPath(request.path); !real.empty()) {
    entry.name = std::move(real);
  }
  EntryWriter writer(&out);
  SB_TRYV(writer.Add(entry));
  return writer.Flush();
}

Result<> WriteBytes(int in, const protocol::WriteFile& request) {
  SB_TRYV(CheckPath(request.path));
  if (request.whole) return WriteWhole(in, request);
  SB_TRY(Fd fd, OpenForWriting(request));
  return CopyInto(in, fd.get(), request.offset, request.path);
}

Result<> Apply(const protocol::SetAttributes& request) {
  SB_TRYV(CheckPath(request.path));
  const char* path = request.path.c_str();
  const int flags = request.follow ? 0 : AT_SYMLINK_NOFOLLOW;
  if (request.size) SB_TRYV(Truncate(request));
  // A change of owner takes set-user-ID bits away, so the mode comes after it.
  const uid_t owner = request.owner.value_or(static_cast<uid_t>(-1));
  const gid_t group = request.group.value_or(static_cast<gid_t>(-1));
  if ((request.owner || request.group) && ::fchownat(AT_FDCWD, path, owner, group, flags) != 0)
    return FailErrno("set the owner of " + request.path);
  if (request.mode && ::fchmodat(AT_FDCWD, path, *request.mode, flags) != 0)
    return FailErrno("set the mode of " + request.path);
  if (!request.accessed_ns && !request.modified_ns) return {};
  const struct timespec keep{.tv_sec = 0, .tv_nsec = UTIME_OMIT};
  const std::array<struct timespec, 2> times{request.accessed_ns ? ToTime(*request.accessed_ns) : keep,
                                             request.modified_ns ? ToTime(*request.modified_ns) : keep};
  if (::utimensat(AT_FDCWD, path, times.data(), flags) != 0) return FailErrno("set the times of " + request.path);
  return {};
}

Result<> Apply(const protocol::RenameFile& request) {
  SB_TRYV(CheckPath(request.path));
  SB_TRYV(CheckPath(request.to));
  const char* from = request.path.c_str();
  const char* to = request.to.c_str();
  int done = ::renameat2(AT_FDCWD, from, AT_FDCWD, to, request.replace ? 0 : RENAME_NOREPLACE);
  if (done != 0 && errno == EINVAL && !request.replace) {
    // gVisor's files know no such rename. It would give the same error for a directory that is moved into itself, and
    // so does the plain one.
    struct stat st{};
    if (::lstat(to, &st) == 0) return FailErrno("rename " + request.path + " to " + request.to, EEXIST);
    done = ::rename(from, to);
  }
  if (done != 0) return FailErrno("rename " + request.path + " to " + request.to);
  return {};
}

Result<> Apply(const protocol::RemoveFile& request) {
  using What = protocol::RemoveFile::What;
  SB_TRYV(CheckPath(request.path));
  const std::string whole = Stripped(request.path);
  const char* path = whole.c_str();
  struct stat st{};
  if (::lstat(path, &st) != 0) return FailErrno("remove " + request.path);
  const bool directory = S_ISDIR(st.st_mode);
  if (directory && request.what == What::kTree) {
    const std::string name = whole.substr(whole.rfind('/') + 1);
    if (name.empty() || name == "." || name == "..") return FailErrno("remove " + request.path, EINVAL);
    // By descriptors and without following links. os::RemoveTree wants a system call that gVisor does not have.
    std::error_code failed;
    std::filesystem::remove_all(whole, failed);
    if (failed) return FailErrno("remove " + request.path, failed.value());
    return {};
  }
  if (directory && request.what == What::kFile) return FailErrno("remove " + request.path, EISDIR);
  if (!directory && request.what == What::kEmptyDirectory) return FailErrno("remove " + request.path, ENOTDIR);
  if ((directory ? ::rmdir(path) : ::unlink(path)) != 0) return FailErrno("remove " + request.path);
  return {};
}

Result<> Apply(const protocol::MakeLink& request) {
  SB_TRYV(CheckPath(request.path));
  SB_TRYV(CheckPath(request.target));
  const char* path = request.path.c_str();
  if (request.symbolic && ::symlink(request.target.c_str(), path) != 0)
    return FailErrno("make the link " + request.path);
  if (!request.symbolic && ::linkat(AT_FDCWD, request.target.c_str(), AT_FDCWD, path, 0) != 0)
    return FailErrno("make the link " + request.path);
  return {};
}

}  // namespace sandbar::guest
