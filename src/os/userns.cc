#include "os/userns.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
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
  std::array<int, 2> pipe{};
  if (::pipe2(pipe.data(), O_CLOEXEC) != 0) return FailErrno("pipe");
  Fd read_end(pipe[0]), write_end(pipe[1]);
  int pidfd = -1;
  pid_t pid = Clone3Raw(CLONE_NEWUSER | CLONE_PIDFD, &pidfd);
  if (pid < 0) return FailErrno("clone user namespace");
  if (pid == 0) {
    // Lives until the parent has opened the namespace; the parent's death closes the pipe as well.
    char c = 0;
    ::close(pipe[1]);
    [[maybe_unused]] ssize_t n = ::read(pipe[0], &c, 1);
    ::_exit(0);
  }
  Fd process(pidfd);
  std::string proc = "/proc/" + std::to_string(pid);
  std::string map = "0 " + std::to_string(base) + " " + std::to_string(kIdsPerMachine);
  auto made = [&]() -> Result<Fd> {
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
