#include "guest/launch.h"

#include <fcntl.h>
#include <sys/ioctl.h>
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
#include "guest/terminal.h"

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
  int in, out, err, status;
  int channel;  // -1: none as descriptor 3
  int signals;  // -1: the terminal needs no signaller, or there is none
};

// All but 0, 1, 2, the status pipe and the channel. Closed, not only marked: a child that hangs in a guest's file
// system must not keep the end of another command's input from being seen. The status pipe and all that is opened later
// go with the exec.
bool CloseOthers(int status, bool channel) {
  const unsigned first = channel ? 4 : 3, kept = static_cast<unsigned>(status);
  return (kept == first || ::close_range(first, kept - 1, 0) == 0) && ::close_range(kept + 1, kLastFd, 0) == 0;
}

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
  if (request.terminal) check(::ioctl(0, TIOCSCTTY, 0) == 0, LaunchStep::kSession);
  if (ends.signals >= 0) check(StartSignaller(ends.signals), LaunchStep::kSession);
  if (ends.channel == 3) check(::fcntl(3, F_SETFD, 0) == 0, LaunchStep::kSession);
  if (ends.channel > 3) check(::dup2(ends.channel, 3) == 3, LaunchStep::kSession);
  check(CloseOthers(status, ends.channel >= 0), LaunchStep::kSession);
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

namespace {

// Both sides of what a command is connected with.
struct Connections {
  Launched ours;
  Fd in, out, err, channel, signals;  // the child's; `in` empty: /dev/null
};

Result<> MakeChannel(const protocol::Exec& request, Connections& c) {
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) return FailErrno("socketpair");
  c.ours.channel = Fd(fds[0]);
  (request.channel == protocol::Channel::kDescriptor3 ? c.channel : c.in) = Fd(fds[1]);
  if (::fcntl(c.ours.channel.get(), F_SETFL, O_NONBLOCK) != 0) return FailErrno("fcntl");
  return {};
}

// The writing end is non-blocking, for the agent.
Result<> MakeInputPipe(Fd& read, Fd& write) {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) return FailErrno("pipe");
  read = Fd(fds[0]);
  write = Fd(fds[1]);
  if (::fcntl(fds[1], F_SETFL, O_NONBLOCK) != 0) return FailErrno("fcntl");
  return {};
}

Result<> MakePipes(const protocol::Exec& request, Connections& c) {
  SB_TRY(Pipe out, MakePipe());
  SB_TRY(Pipe err, MakePipe());
  c.ours.out = std::move(out.read), c.out = std::move(out.write);
  c.ours.err = std::move(err.read), c.err = std::move(err.write);
  if (request.standard_input) SB_TRYV(MakeInputPipe(c.in, c.ours.input));
  for (const Fd* fd : {&c.in, &c.out, &c.err}) {
    // So that the user can open /dev/stdin, /dev/stdout and /dev/stderr; only a comfort, hence unchecked.
    [[maybe_unused]] int r = *fd ? ::fchown(fd->get(), request.uid, request.gid) : 0;
  }
  return {};
}

Result<> MakeTerminal(const ChildSetup& setup, const protocol::Exec& request, Connections& c) {
  SB_TRY(Terminal t, OpenTerminal(setup.pts, *request.terminal, request.uid));
  for (Fd* fd : {&c.in, &c.out, &c.err}) {
    *fd = Fd(::fcntl(t.slave.get(), F_DUPFD_CLOEXEC, 3));
    if (!*fd) return FailErrno("dup");
  }
  // A descriptor of its own, because it is watched on its own.
  c.ours.input = Fd(::fcntl(t.master.get(), F_DUPFD_CLOEXEC, 3));
  if (!c.ours.input) return FailErrno("dup");
  if (t.lacks_signals) SB_TRYV(MakeInputPipe(c.signals, c.ours.signals));
  c.ours.out = std::move(t.master);
  c.ours.terminal = std::move(t.slave);
  return {};
}

Result<> CheckRequest(const protocol::Exec& request) {
  if (HasNul(request.argv) || HasNul(request.env) || request.cwd.find('\0') != std::string::npos)
    return Fail(Code::kBadRequest, "NUL in an argument");
  if (request.TakesInput() && request.channel == protocol::Channel::kStandardInput)
    return Fail(Code::kBadRequest, "two uses of standard input");
  return {};
}

}  // namespace

Result<Launched> Launch(const ChildSetup& setup, const protocol::Exec& request) {
  SB_TRYV(CheckRequest(request));
  Connections c;
  SB_TRYV(request.terminal ? MakeTerminal(setup, request, c) : MakePipes(request, c));
  if (request.channel != protocol::Channel::kNone) SB_TRYV(MakeChannel(request, c));
  SB_TRY(Pipe status, MakePipe());
  pid_t pid = ::fork();
  if (pid < 0) return FailErrno("fork");
  if (pid == 0) {
    ChildEnds ends{c.in ? c.in.get() : setup.null.get(),
                   c.out.get(),
                   c.err.get(),
                   status.write.get(),
                   c.channel.get(),
                   c.signals.get()};
    RunChild(setup, request, ends);
  }
  c.ours.pid = pid;
  c.ours.status = std::move(status.read);
  return std::move(c.ours);
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
