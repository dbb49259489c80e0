#include "os/confine.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <linux/fs.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <string>

#include "base/fd.h"
#include "os/process.h"

namespace sandbar::os {
namespace {

constexpr uint64_t kKill = uint64_t{1} << CAP_KILL;

std::string StatusLine(pid_t pid, const std::string& name) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(name + ":")) return line.substr(name.size() + 2);
  return "?";
}

// Each thing that must not work has a letter, which is said when it does.
std::string Attempts() {
  std::string worked;
  auto refused = [&](char letter, long result) {
    if (result >= 0 || errno != EPERM) worked += letter;
  };
  refused('o', ::open("/", O_RDONLY | O_CLOEXEC));
  refused('s', ::socket(AF_UNIX, SOCK_STREAM, 0));
  refused('f', ::fork());
  refused('e', ::execl("/bin/true", "true", nullptr));
  refused('k', ::kill(::getppid(), 0));
  refused('u', ::setuid(1));
  refused('p', ::pipe2(std::array<int, 2>{}.data(), 0));
  refused('d', ::fcntl(0, F_DUPFD, 0));
  refused('i', ::ioctl(0, FS_IOC_GETFLAGS, &worked));
  refused('w', ::waitpid(-1, nullptr, WNOHANG));
  return worked;
}

TEST(Confine, WhatIsOpenCanBeUsedAndNothingElse) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  std::array<int, 2> pair{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.data()), 0);
  Fd ours(pair[0]), theirs(pair[1]);
  int pidfd = -1;
  const pid_t pid = Clone3Raw(CLONE_PIDFD, &pidfd);
  if (pid == 0) {
    ours.Reset();
    int victim_fd = -1;
    const pid_t victim = Clone3Raw(CLONE_PIDFD, &victim_fd);
    if (victim == 0) {
      // Somebody else's process, as a jailed one is.
      if (::setresuid(1, 1, 1) != 0) ::_exit(1);
      for (;;) ::pause();
    }
    auto confined = ConfineToDescriptors(kKill, {FIONREAD});
    std::string said = confined ? Attempts() : confined.error().message;
    int waiting = 0;
    if (::ioctl(theirs.get(), FIONREAD, &waiting) != 0) said += " ioctl";
    if (!SendSignal(victim_fd, SIGKILL)) said += " signal";
    auto ended = TryReap(victim_fd);
    while (ended && !*ended) ended = TryReap(victim_fd);
    if (!ended) said += " reap";
    said += ".";
    iovec part{said.data(), said.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    pollfd room{theirs.get(), POLLOUT, 0};
    if (::poll(&room, 1, -1) != 1 || ::sendmsg(theirs.get(), &message, 0) < 0) ::_exit(1);
    // Until it was looked at.
    char byte = 0;
    ::_exit(::recv(theirs.get(), &byte, 1, 0) == 0 ? 7 : 1);
  }
  ASSERT_GT(pid, 0);
  Fd process(pidfd);
  theirs.Reset();
  std::array<char, 200> said{};
  const ssize_t n = ::recv(ours.get(), said.data(), said.size(), 0);
  EXPECT_EQ(std::string(said.data(), n > 0 ? static_cast<size_t>(n) : 0), ".");
  for (const char* set : {"CapEff", "CapPrm", "CapBnd"})
    EXPECT_EQ(std::stoull(StatusLine(pid, set), nullptr, 16), kKill);
  EXPECT_EQ(StatusLine(pid, "NoNewPrivs"), "1");
  EXPECT_EQ(StatusLine(pid, "Seccomp"), "2");
  ours.Reset();
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

}  // namespace
}  // namespace sandbar::os
