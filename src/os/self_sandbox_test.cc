#include "os/self_sandbox.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <string>
#include <thread>

#include "base/log.h"

namespace sandbar::os {
namespace {

constexpr uint32_t kUser = 64999;

std::string StatusLine(const std::string& pid, const std::string& name) {
  std::ifstream in("/proc/" + pid + "/status");
  std::string line;
  while (std::getline(in, line)) {
    if (line.starts_with(name + ":")) return line.substr(name.size() + 2);
  }
  return "?";
}

int InChild(const std::function<int()>& f) {
  pid_t pid = ::fork();
  if (pid == 0) ::_exit(f());
  int status = 0;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

class SelfSandbox : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  }
};

TEST_F(SelfSandbox, RefusesToStayRoot) {
  EXPECT_FALSE(DropToDaemon({.uid = 0, .gid = 0}));
}

// The posture is read from outside, as an auditor would.
TEST_F(SelfSandbox, PostureInProc) {
  int ready[2], done[2];
  ASSERT_EQ(::pipe(ready), 0);
  ASSERT_EQ(::pipe(done), 0);
  pid_t pid = ::fork();
  if (pid == 0) {
    char ok = DropToDaemon({.uid = kUser, .gid = kUser}) ? 'y' : 'n';
    (void)!::write(ready[1], &ok, 1);
    (void)!::read(done[0], &ok, 1);
    ::_exit(0);
  }
  char ok = 0;
  ASSERT_EQ(::read(ready[0], &ok, 1), 1);
  EXPECT_EQ(ok, 'y');
  const std::string p = std::to_string(pid);
  const std::string id = std::to_string(kUser);
  EXPECT_EQ(StatusLine(p, "Uid"), id + "\t" + id + "\t" + id + "\t" + id);
  EXPECT_EQ(StatusLine(p, "Gid"), id + "\t" + id + "\t" + id + "\t" + id);
  EXPECT_EQ(StatusLine(p, "Groups"), " ");
  for (const char* set : {"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"}) {
    EXPECT_EQ(StatusLine(p, set), "0000000000000000") << set;
  }
  EXPECT_EQ(StatusLine(p, "NoNewPrivs"), "1");
  EXPECT_EQ(StatusLine(p, "Seccomp"), "2");
  (void)!::write(done[1], "x", 1);
  int status = 0;
  ::waitpid(pid, &status, 0);
  for (int fd : {ready[0], ready[1], done[0], done[1]}) ::close(fd);
}

TEST_F(SelfSandbox, PrivilegedCallsAreRefusedAndOrdinaryOnesWork) {
  EXPECT_EQ(InChild([] {
              if (!DropToDaemon({.uid = kUser, .gid = kUser})) return 1;
              rlimit core{};
              if (::getrlimit(RLIMIT_CORE, &core) != 0 || core.rlim_max != 0) return 2;
              if (::unshare(CLONE_NEWUSER) == 0 || errno != EPERM) return 3;
              if (::mount("none", "/", "tmpfs", 0, nullptr) == 0 || errno != EPERM) return 4;
              if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) == 0 || errno != EPERM) return 5;
              if (::syscall(SYS_bpf, 0, nullptr, 0) != -1 || errno != EPERM) return 6;
              if (::syscall(SYS_setns, -1, 0) != -1 || errno != EPERM) return 7;
              if (::setresuid(0, 0, 0) == 0) return 8;
              int value = 0;
              std::thread([&value] { value = 1; }).join();  // clone3 falls back to clone
              return value == 1 ? 0 : 9;
            }),
            0);
}

// A daemon that was started as its own user already (a service manager did it) is confined in the same way.
TEST_F(SelfSandbox, WorksWithoutRoot) {
  EXPECT_EQ(InChild([] {
              if (::setresgid(kUser, kUser, kUser) != 0 || ::setresuid(kUser, kUser, kUser) != 0) return 1;
              if (!DropToDaemon({.uid = kUser, .gid = kUser})) return 2;
              return ::unshare(CLONE_NEWUSER) == 0 ? 3 : 0;
            }),
            0);
  EXPECT_EQ(InChild([] {
              if (::setresgid(kUser, kUser, kUser) != 0 || ::setresuid(kUser, kUser, kUser) != 0) return 1;
              return DropToDaemon({.uid = kUser + 1, .gid = kUser}) ? 2 : 0;
            }),
            0);
}

}  // namespace
}  // namespace sandbar::os
