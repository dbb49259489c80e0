#include "guest/launch.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "base/signals.h"
#include "guest/elevated.h"
#include "guest/identity.h"

namespace sandbar::guest {
namespace {

constexpr std::string_view kDefaultPath = "/usr/local/bin:/usr/bin:/bin";

// What execvp does for a script without "#!".
void ExecShell(const std::string& path, const std::vector<std::string>& argv, char* const* env) {
  std::vector<std::string> args{"/bin/sh", path};
  args.insert(args.end(), argv.begin() + 1, argv.end());
  ::execve("/bin/sh", Pointers(args).data(), env);
}

// Returns only on failure.
LaunchFailure TryExec(const std::string& path, const std::vector<std::string>& argv, char* const* env) {
  ::execve(path.c_str(), Pointers(argv).data(), env);
  int err = errno;
  if (err == ENOEXEC) ExecShell(path, argv, env);
  struct stat st{};
  bool exists = ::stat(path.c_str(), &st) == 0;
  if (exists && err == ENOENT) err = ENOEXEC;  // its interpreter is what is missing
  return LaunchFailure{LaunchStep::kExec, exists, err};
}

std::string_view PathOf(const protocol::Exec& request) {
  std::string_view path = kDefaultPath;
  for (std::string_view e : request.env) {
    if (e.starts_with("PATH=")) path = e.substr(5);
  }
  return path;
}

LaunchFailure ExecInPath(const protocol::Exec& request) {
  LaunchFailure failure{LaunchStep::kExec, false, ENOENT};
  auto env = Pointers(request.env);
  const std::string& file = request.argv[0];
  if (file.empty()) return failure;
  if (file.find('/') != std::string::npos) {
    return TryExec(file, request.argv, env.data());
  }
  std::string_view path = PathOf(request);
  for (bool more = true; more;) {
    size_t n = std::min(path.find(':'), path.size());
    std::string dir(path.substr(0, n));
    more = n < path.size();
    path.remove_prefix(more ? n + 1 : n);
    if (dir.empty()) dir = ".";  // POSIX: an empty part is the current directory
    auto tried = TryExec(dir + "/" + file, request.argv, env.data());
    // The first file that is there but cannot run is the one to talk about, unless a later one runs. A directory that
    // the user may not search holds nothing for them.
    if (tried.found && !failure.found) failure = tried;
    if (tried.found && tried.err != EACCES && tried.err != ENOEXEC) break;
  }
  return failure;
}

// The command is that program, by its full name or as the first of its name on PATH.
bool MeansElevated(const std::string& elevated, const protocol::Exec& request) {
  if (elevated.empty() || request.uid == 0) return false;
  const std::string& file = request.argv[0];
  if (file.empty() || file.contains('/')) return file == elevated;
  std::string_view path = PathOf(request);
  while (!path.empty()) {
    const size_t n = std::min(path.find(':'), path.size());
    const std::string tried = std::string(path.substr(0, n)) + "/" + file;
    if (::access(tried.c_str(), X_OK) == 0) return tried == elevated;
    path.remove_prefix(std::min(n + 1, path.size()));
  }
  return false;
}

LaunchFailure RunElevated(const std::string& elevated, const protocol::Exec& request) {
  if (Fd file = OpenElevated(elevated))
    return LaunchFailure{LaunchStep::kExec, true, ExecElevated(file, request.uid, request.argv, request.env)};
  if (::setresuid(request.uid, request.uid, request.uid) != 0) return LaunchFailure{LaunchStep::kUser, false, errno};
  return ExecInPath(request);
}

[[noreturn]] void Die(int status_fd, const LaunchFailure& failure) {
  [[maybe_unused]] ssize_t n = ::write(status_fd, &failure, sizeof failure);
  ::_exit(127);
}

struct ChildEnds {
  int out, err, status, channel;  // channel -1: none as descriptor 3
  int in;
};

// Runs in the child. The agent has one thread, so allocating after fork is safe here.
[[noreturn]] void RunChild(const ChildSetup& setup, const protocol::Exec& request, const ChildEnds& ends) {
  // What becomes descriptor 3 may not push aside what is still needed.
  int status = ends.channel >= 0 ? ::fcntl(ends.status, F_DUPFD_CLOEXEC, 10) : ends.status;
  auto check = [&](bool ok, LaunchStep step) {
    if (!ok) Die(status, LaunchFailure{step, false, errno});
  };
  check(JoinCgroups(setup), LaunchStep::kJoin);
  check(::setsid() >= 0, LaunchStep::kSession);
  check(::dup2(ends.in, 0) == 0 && ::dup2(ends.out, 1) == 1 && ::dup2(ends.err, 2) == 2, LaunchStep::kSession);
  // Every other descriptor is gone with the exec, whatever was left open without the flag.
  check(::close_range(3, kLastFd, CLOSE_RANGE_CLOEXEC) == 0, LaunchStep::kSession);
  if (ends.channel == 3) check(::fcntl(3, F_SETFD, 0) == 0, LaunchStep::kSession);
  if (ends.channel > 3) check(::dup2(ends.channel, 3) == 3, LaunchStep::kSession);
  check(::setrlimit(RLIMIT_NOFILE, &setup.files) == 0, LaunchStep::kSession);
  ::umask(022);
  const bool elevate = MeansElevated(setup.elevated, request);
  check(BecomeUser(request.uid, request.gid, request.user, elevate ? 0 : request.uid), LaunchStep::kUser);
  check(::chdir(request.cwd.c_str()) == 0, LaunchStep::kCwd);
  ResetSignals();
  Die(status, elevate ? RunElevated(setup.elevated, request) : ExecInPath(request));
}

bool HasNul(const std::vector<std::string>& strings) {
  for (const auto& s : strings) {
    if (s.find('\0') != std::string::npos) return true;
  }
  return false;
}

}  // namespace

bool JoinCgroups(const ChildSetup& setup) {
  for (const auto& fd : setup.join_fds) {
    if (::write(fd.get(), "0", 1) != 1) return false;
  }
  return true;
}

Result<Pipe> MakePipe() {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) return FailErrno("pipe");
  Pipe p{Fd(fds[0]), Fd(fds[1])};
  if (::fcntl(p.read.get(), F_SETFL, O_NONBLOCK) != 0) return FailErrno("fcntl");
  return p;
}

Result<Launched> Launch(const ChildSetup& setup, const protocol::Exec& request) {
  if (HasNul(request.argv) || HasNul(request.env) || request.cwd.find('\0') != std::string::npos)
    return Fail(Code::kBadRequest, "NUL in an argument");
  SB_TRY(Pipe out, MakePipe());
  SB_TRY(Pipe err, MakePipe());
  SB_TRY(Pipe status, MakePipe());
  for (int fd : {out.write.get(), err.write.get()}) {
    // So that the user can open /dev/stdout and /dev/stderr; only a comfort, hence unchecked.
    [[maybe_unused]] int r = ::fchown(fd, request.uid, request.gid);
  }
  Fd ours, theirs;
  if (request.channel != protocol::Channel::kNone) {
    int fds[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) return FailErrno("socketpair");
    ours = Fd(fds[0]);
    theirs = Fd(fds[1]);
    if (::fcntl(ours.get(), F_SETFL, O_NONBLOCK) != 0) return FailErrno("fcntl");
  }
  pid_t pid = ::fork();
  if (pid < 0) return FailErrno("fork");
  if (pid == 0) {
    ChildEnds ends{out.write.get(), err.write.get(), status.write.get(), -1, setup.null.get()};
    if (request.channel == protocol::Channel::kDescriptor3) ends.channel = theirs.get();
    if (request.channel == protocol::Channel::kStandardInput) ends.in = theirs.get();
    RunChild(setup, request, ends);
  }
  return Launched{pid, std::move(out.read), std::move(err.read), std::move(status.read), std::move(ours)};
}

protocol::ExecFailed Describe(const protocol::Exec& request, const LaunchFailure& failure) {
  protocol::ExecFailed out{request.id, protocol::ExecFailure::kOther, {}};
  std::string why = std::strerror(failure.err);
  std::string name = request.argv[0].substr(0, 1024);
  switch (failure.step) {
    case LaunchStep::kJoin:
    case LaunchStep::kSession:
      out.kind = protocol::ExecFailure::kNoResources;
      out.message = "cannot prepare a process: " + why;
      return out;
    case LaunchStep::kUser:
      out.message = "cannot become user " + std::to_string(request.uid) + ": " + why;
      return out;
    case LaunchStep::kCwd:
      out.kind = protocol::ExecFailure::kBadCwd;
      out.message = "cannot enter directory " + request.cwd.substr(0, 1024) + ": " + why;
      return out;
    case LaunchStep::kExec:
      break;
  }
  if (failure.err == ENOENT || failure.err == ENOTDIR) {
    out.kind = protocol::ExecFailure::kNotFound;
    out.message = "executable file not found in $PATH: " + name;
  } else if (failure.err == EACCES || failure.err == ENOEXEC || failure.err == EPERM || failure.err == EISDIR) {
    out.kind = protocol::ExecFailure::kNotExecutable;
    out.message = "cannot execute " + name + ": " + why;
  } else if (failure.err == ENOMEM || failure.err == EAGAIN) {
    out.kind = protocol::ExecFailure::kNoResources;
    out.message = "cannot execute " + name + ": " + why;
  } else {
    out.message = "cannot execute " + name + ": " + why;
  }
  return out;
}

}  // namespace sandbar::guest
