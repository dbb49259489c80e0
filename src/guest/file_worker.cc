#include "guest/file_worker.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "base/signals.h"
#include "guest/extract.h"
#include "guest/file_calls.h"
#include "guest/gunzip.h"
#include "guest/identity.h"
#include "guest/pack.h"
#include "wire/tar.h"

namespace sandbar::guest {
namespace {

constexpr int kUp = 3;
constexpr int kDown = 4;
constexpr int kWritten = 5;
constexpr int kPipe = 256 << 10;  // fewer turns between agent and worker; the default serves where it is refused

protocol::FileErrorKind KindOf(const Error& error) {
  using protocol::FileErrorKind;
  if (error.code == Code::kBadRequest) return FileErrorKind::kBadArchive;
  if (error.code == Code::kTooLarge) return FileErrorKind::kTooLarge;
  switch (error.sys_errno) {
    case ENOENT:
      return FileErrorKind::kNotFound;
    case EACCES:
    case EPERM:
    case EROFS:
      return FileErrorKind::kDenied;
    case EEXIST:
      return FileErrorKind::kExists;
    case ENOTDIR:
      return FileErrorKind::kNotDirectory;
    case EISDIR:
      return FileErrorKind::kIsDirectory;
    case ENXIO:
    case ENODEV:
    case EAGAIN:
      return FileErrorKind::kNotRegular;
    case ENOSPC:
    case EDQUOT:
      return FileErrorKind::kNoSpace;
    case EFBIG:
      return FileErrorKind::kTooLarge;
    case ENOTEMPTY:
      return FileErrorKind::kNotEmpty;
    case EINVAL:
    case ELOOP:
    case ENAMETOOLONG:
    case EXDEV:
    case EOPNOTSUPP:
      return FileErrorKind::kInvalid;
    default:
      return FileErrorKind::kOther;
  }
}

uint32_t StreamOf(const FileRequest& request) {
  return std::visit([](const auto& r) { return r.stream; }, request);
}

Result<> Enter(const std::string& cwd, const std::string& path) {
  if (path.starts_with('/') || cwd.empty()) return {};
  if (::chdir(cwd.c_str()) != 0) return FailErrno("enter " + cwd);
  return {};
}

Result<> Pack(const std::string& path, FrameOut& out) {
  auto send = [&out](std::string_view bytes) { return out.Send(protocol::Data{out.stream(), std::string(bytes)}); };
  if (!path.empty()) {
    Fd dir(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!dir) return FailErrno("open " + path);
    return PackAll(dir.get(), send);
  }
  if (::fcntl(kWritten, F_GETFD) < 0) return FailErrno("this machine cannot tell what was written to it", ENXIO);
  // The root as it is, without what is mounted on it.
  Fd merged(::open_tree(AT_FDCWD, "/", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC));
  if (!merged) return FailErrno("open the root");
  Fd readable(::openat(merged.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!readable) return FailErrno("open the root");
  return PackWritten(kWritten, readable.get(), send);
}

Result<> Do(const protocol::ReadFile& request, FrameOut& out) {
  return ReadFileTo(request, out);
}
Result<> Do(const protocol::WriteTar& request, FrameOut&) {
  return ExtractFrom(kDown, request.gzip, request.cwd);
}
Result<> Do(const protocol::MakeDir& request, FrameOut&) {
  struct stat st{};
  const bool exists = ::stat(request.path.c_str(), &st) == 0;
  SB_TRYV(MakeDirectory(request.path, request.recursive));
  if (!exists && request.mode && ::chmod(request.path.c_str(), *request.mode) != 0)
    return FailErrno("set the mode of " + request.path);
  return {};
}
Result<> Do(const protocol::PackTree& request, FrameOut& out) {
  return Pack(request.path, out);
}
Result<> Do(const protocol::UnpackTree& request, FrameOut&) {
  return UnpackFrom(kDown, request.path);
}
Result<> Do(const protocol::ListDir& request, FrameOut& out) {
  return ListEntries(request, out);
}
Result<> Do(const protocol::StatFile& request, FrameOut& out) {
  return StatEntry(request, out);
}
Result<> Do(const protocol::WriteFile& request, FrameOut&) {
  return WriteBytes(kDown, request);
}
Result<> Do(const auto& request, FrameOut&) {
  return Apply(request);
}

Result<> Perform(const FileRequest& request, FrameOut& out) {
  auto perform = [&out](const auto& r) -> Result<> {
    // An archive's directory is made when it is missing, and trees have absolute paths.
    if constexpr (requires { r.path, r.cwd; }) SB_TRYV(Enter(r.cwd, r.path));
    return Do(r, out);
  };
  return std::visit(perform, request);
}

// Nothing of the agent's stays reachable through /proc/self/fd.
bool KeepOnly(const ChildSetup& setup, int up, int down, bool written) {
  for (int fd : {0, 1, 2}) {
    if (::dup2(setup.null.get(), fd) != fd) return false;
  }
  // Out of the way first: either number may be the other's target.
  int high_up = ::fcntl(up, F_DUPFD, 16);
  int high_down = down < 0 ? -1 : ::fcntl(down, F_DUPFD, 16);
  int high_written = setup.written ? ::fcntl(setup.written.get(), F_DUPFD, 16) : -1;
  if (high_up < 0 || (down >= 0 && high_down < 0)) return false;
  if (::dup2(high_up, kUp) < 0) return false;
  if (down >= 0 && ::dup2(high_down, kDown) < 0) return false;
  if (down < 0) ::close(kDown);
  if (!written || high_written < 0 || ::dup2(high_written, kWritten) < 0) ::close(kWritten);
  return ::close_range(kWritten + 1, kLastFd, 0) == 0;
}

[[noreturn]] void RunWorker(const ChildSetup& setup, const FileRequest& request, int up, int down) {
  struct Who {
    uint32_t uid, gid;
    const std::string& user;
  };
  const std::string root = "root";
  auto who = std::visit(
      [&root](const auto& r) {
        if constexpr (requires { r.user; }) return Who{r.uid, r.gid, r.user};
        return Who{0, 0, root};
      },
      request);
  const bool written = std::holds_alternative<protocol::PackTree>(request);
  if (!JoinCgroups(setup) || ::setsid() < 0 || !KeepOnly(setup, up, down, written)) ::_exit(1);
  ::prctl(PR_SET_NAME, "sandbar-file");
  ResetSignals();
  ::signal(SIGPIPE, SIG_IGN);
  ::umask(022);
  FrameOut out(kUp, StreamOf(request));
  Result<> done = FailErrno("become user " + std::to_string(who.uid), EPERM);
  if (BecomeUser(who.uid, who.gid, who.user, who.uid)) {
    // The change of user made the process dumpable by that user's rules; it still holds the agent's memory image.
    ::prctl(PR_SET_DUMPABLE, 0);
    done = Perform(request, out);
  }
  if (done) {
    [[maybe_unused]] auto sent = out.Send(protocol::End{out.stream()});
  } else {
    [[maybe_unused]] auto sent = out.Send(ToFileError(out.stream(), done.error()));
  }
  ::_exit(0);
}

// Looks before it opens, because opening a device can have effects, and after, because the guest can swap the file.
Result<Fd> OpenRegular(const std::string& path, struct stat& st) {
  if (::stat(path.c_str(), &st) != 0) return FailErrno("open " + path);
  if (S_ISDIR(st.st_mode)) return FailErrno("open " + path, EISDIR);
  if (!S_ISREG(st.st_mode)) return FailErrno("not a regular file: " + path, ENXIO);
  Fd fd(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (!fd) return FailErrno("open " + path);
  if (::fstat(fd.get(), &st) != 0) return FailErrno("stat " + path);
  if (!S_ISREG(st.st_mode)) return FailErrno("not a regular file: " + path, ENXIO);
  return fd;
}

}  // namespace

protocol::FileError ToFileError(uint32_t stream, const Error& error) {
  return protocol::FileError{stream, KindOf(error), error.message.substr(0, protocol::kMaxErrorText)};
}

Result<> FrameOut::Send(const protocol::GuestFrame& frame) {
  std::string bytes = protocol::Encode(frame);
  std::string_view rest = bytes;
  while (!rest.empty()) {
    ssize_t n = ::write(fd_, rest.data(), rest.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FailErrno("write to the agent");
    rest.remove_prefix(static_cast<size_t>(n));
  }
  return {};
}

Result<> ReadFileTo(const protocol::ReadFile& request, FrameOut& out) {
  const std::string& path = request.path;
  if (path.empty() || path.find('\0') != std::string::npos) return FailErrno("open", ENOENT);
  struct stat st{};
  SB_TRY(Fd fd, OpenRegular(path, st));
  // A file that grows while it is read ends where it ended when it was opened.
  const bool sized = st.st_size > 0;
  const uint64_t size = sized ? static_cast<uint64_t>(st.st_size) : kMaxUnsized;
  if (request.offset >= size) return {};
  if (request.offset > 0 && ::lseek(fd.get(), static_cast<off_t>(request.offset), SEEK_SET) < 0)
    return FailErrno("read " + path);
  const bool part = request.length > 0 && request.length <= size - request.offset;
  uint64_t left = part ? request.length : size - request.offset;
  protocol::Data data{out.stream(), {}};
  while (left > 0) {
    data.bytes.resize(std::min<uint64_t>(left, kWorkerChunk));
    ssize_t n = ::read(fd.get(), data.bytes.data(), data.bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FailErrno("read " + path);
    if (n == 0) return {};
    data.bytes.resize(static_cast<size_t>(n));
    left -= data.bytes.size();
    SB_TRYV(out.Send(data));
  }
  if (!sized && !part) return Fail(Code::kTooLarge, "read " + path + ": more than the limit for files without a size");
  return {};
}

Result<> ExtractFrom(int in, bool gzip, const std::string& cwd) {
  if (!cwd.empty()) {
    SB_TRYV(MakeDirectory(cwd, true));
    if (::chdir(cwd.c_str()) != 0) return FailErrno("enter " + cwd);
  }
  Extractor extractor;
  wire::TarTakes takes;
  takes.symlinks = true;
  wire::TarReader tar(&extractor, takes);
  Gunzip gz;
  auto feed = [&tar](std::string_view plain) { return tar.Feed(plain); };
  std::array<char, kWorkerChunk> buffer{};
  for (;;) {
    ssize_t n = ::read(in, buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FailErrno("read from the agent");
    if (n == 0) break;
    std::string_view bytes(buffer.data(), static_cast<size_t>(n));
    if (gzip) {
      SB_TRYV(gz.Feed(bytes, feed));
    } else {
      SB_TRYV(tar.Feed(bytes));
    }
  }
  if (gzip) SB_TRYV(gz.Finish());
  SB_TRYV(tar.Finish());
  return extractor.Finish();
}

Result<> MakeDirectory(const std::string& path, bool recursive) {
  if (path.empty() || path.find('\0') != std::string::npos) return FailErrno("create directory", ENOENT);
  if (recursive) return MakeDirectories(path);
  if (::mkdir(path.c_str(), 0777) != 0) return FailErrno("create directory " + path);
  return {};
}

Result<Worker> StartWorker(const ChildSetup& setup, const FileRequest& request) {
  SB_TRY(Pipe up, MakePipe());
  Pipe down;
  if (IsUpload(request)) {
    int fds[2];
    if (::pipe2(fds, O_CLOEXEC) != 0) return FailErrno("pipe");
    down = Pipe{Fd(fds[0]), Fd(fds[1])};
    if (::fcntl(down.write.get(), F_SETFL, O_NONBLOCK) != 0) return FailErrno("fcntl");
    ::fcntl(down.write.get(), F_SETPIPE_SZ, kPipe);
  }
  ::fcntl(up.read.get(), F_SETPIPE_SZ, kPipe);
  pid_t pid = ::fork();
  if (pid < 0) return FailErrno("fork");
  if (pid == 0) RunWorker(setup, request, up.write.get(), down.read.get());
  return Worker{pid, std::move(up.read), std::move(down.write)};
}

}  // namespace sandbar::guest
