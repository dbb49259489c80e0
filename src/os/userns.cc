#include "os/userns.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include "os/openat.h"
#include "os/process.h"

namespace sandbar::os {
namespace {

Result<> WriteMap(const std::string& path, const std::string& map) {
  SB_TRY(Fd fd, OpenPath(path, O_WRONLY));
  if (::write(fd.get(), map.data(), map.size()) != static_cast<ssize_t>(map.size())) return FailErrno("write " + path);
  return {};
}

constexpr std::array<std::pair<const char*, const char*>, 8> kMostNamespaces = {{{"user", "256"},
                                                                                 {"net", "256"},
                                                                                 {"mnt", "1000"},
                                                                                 {"pid", "500"},
                                                                                 {"ipc", "500"},
                                                                                 {"uts", "500"},
                                                                                 {"cgroup", "500"},
                                                                                 {"time", "100"}}};

struct MakerNews {
  int err = EIO;
  pid_t pid = 0;
};

// In a process of its own. Leaves a child in the new namespace, which lives until `hold` is closed.
Result<pid_t> MakeInside(int outer, int hold) {
  if (::setns(outer, CLONE_NEWUSER) != 0 || ::syscall(SYS_setresgid, 0, 0, 0) != 0 ||
      ::syscall(SYS_setresuid, 0, 0, 0) != 0)
    return FailErrno("enter the outer namespace");
  // With other ids than before, the files of its child in /proc would be the host's root's.
  if (::prctl(PR_SET_DUMPABLE, 1) != 0) return FailErrno("prctl");
  for (auto [kind, most] : kMostNamespaces)
    SB_TRYV(WriteMap(std::string("/proc/sys/user/max_") + kind + "_namespaces", most));
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return FailErrno("pipe");
  const pid_t pid = ::fork();
  if (pid < 0) return FailErrno("fork");
  if (pid == 0) {
    const int err = ::unshare(CLONE_NEWUSER) == 0 ? 0 : errno;
    [[maybe_unused]] ssize_t n = ::write(ends[1], &err, sizeof err);
    char c = 0;
    n = ::read(hold, &c, 1);
    ::_exit(0);
  }
  int err = EIO;
  if (::read(ends[0], &err, sizeof err) != sizeof err || err != 0) return FailErrno("make a user namespace", err);
  const std::string map = "0 0 " + std::to_string(kIdsPerMachine);
  SB_TRYV(WriteMap("/proc/" + std::to_string(pid) + "/uid_map", map));
  SB_TRYV(WriteMap("/proc/" + std::to_string(pid) + "/gid_map", map));
  return pid;
}

}  // namespace

Result<Fd> CreateBoundedNamespace(int outer) {
  std::array<int, 2> hold{}, ends{};
  if (::pipe2(hold.data(), O_CLOEXEC) != 0) return FailErrno("pipe");
  Fd read_end(hold[0]), write_end(hold[1]);
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return FailErrno("pipe");
  Fd news(ends[0]), told(ends[1]);
  int pidfd = -1;
  const pid_t maker = Clone3Raw(CLONE_PIDFD, &pidfd);
  if (maker < 0) return FailErrno("clone");
  if (maker == 0) {
    CloseAllBut({hold[0], ends[1], outer});
    auto made = MakeInside(outer, hold[0]);
    MakerNews what{made ? 0 : made.error().sys_errno, made.value_or(0)};
    [[maybe_unused]] ssize_t n = ::write(ends[1], &what, sizeof what);
    while (::wait(nullptr) > 0) {
    }
    ::_exit(0);
  }
  const Fd process(pidfd);
  told.Reset();
  MakerNews what;
  ssize_t n = 0;
  while ((n = ::read(news.get(), &what, sizeof what)) < 0 && errno == EINTR) {
  }
  Result<Fd> made = FailErrno("make a namespace for containers", n == sizeof what ? what.err : EIO);
  if (n == sizeof what && what.err == 0) made = OpenPath("/proc/" + std::to_string(what.pid) + "/ns/user", O_RDONLY);
  write_end.Reset();
  siginfo_t info{};
  while (::waitid(P_PIDFD, static_cast<id_t>(process.get()), &info, WEXITED) != 0 && errno == EINTR) {
  }
  return made;
}

Result<Fd> CreateUserNamespace(uint32_t base) {
  std::array<int, 2> hold{}, made_it{};
  if (::pipe2(hold.data(), O_CLOEXEC) != 0) return FailErrno("pipe");
  Fd read_end(hold[0]), write_end(hold[1]);
  if (::pipe2(made_it.data(), O_CLOEXEC) != 0) return FailErrno("pipe");
  Fd news(made_it[0]), told(made_it[1]);
  int pidfd = -1;
  pid_t pid = Clone3Raw(CLONE_PIDFD, &pidfd);
  if (pid < 0) return FailErrno("clone");
  if (pid == 0) {
    // Whoever kills us must not find our lock still held by this one.
    CloseAllBut({hold[0], hold[1], made_it[1]});
    // The kernel charges what a namespace uses (inotify, timers, queues, …) to whoever made it as well: made by root,
    // all machines and the host's own services would share one allowance. So the machine's first id makes it.
    int err = 0;
    if (::syscall(SYS_setresgid, base, base, base) != 0 || ::syscall(SYS_setresuid, base, base, base) != 0 ||
        ::unshare(CLONE_NEWUSER) != 0)
      err = errno;
    [[maybe_unused]] ssize_t n = ::write(made_it[1], &err, sizeof err);
    // Lives until the parent has opened the namespace; the parent's death closes the pipe as well.
    ::close(hold[1]);
    char c = 0;
    n = ::read(hold[0], &c, 1);
    ::_exit(0);
  }
  Fd process(pidfd);
  std::string proc = "/proc/" + std::to_string(pid);
  std::string map = "0 " + std::to_string(base) + " " + std::to_string(kIdsPerMachine);
  told.Reset();
  auto made = [&]() -> Result<Fd> {
    int err = EIO;
    ssize_t n = 0;
    while ((n = ::read(news.get(), &err, sizeof err)) < 0 && errno == EINTR) {
    }
    if (n != sizeof err || err != 0) return FailErrno("make a user namespace", err);
    SB_TRYV(WriteMap(proc + "/uid_map", map));
    SB_TRYV(WriteMap(proc + "/gid_map", map));
    return OpenPath(proc + "/ns/user", O_RDONLY);
  }();
  write_end.Reset();
  siginfo_t info{};
  while (::waitid(P_PIDFD, static_cast<id_t>(process.get()), &info, WEXITED) != 0 && errno == EINTR) {
  }
  return made;
}

}  // namespace sandbar::os
