#include "os/userns.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
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

}  // namespace

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
