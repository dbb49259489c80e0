#include "os/caps.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>

namespace sandbar::os {
namespace {

TEST(GuestCapabilities, LeavesOutWhatWouldReachTheHost) {
  for (int c : {CAP_SYS_ADMIN, CAP_SYS_PTRACE, CAP_NET_ADMIN, CAP_SYS_MODULE, CAP_MKNOD, CAP_SYS_RAWIO, CAP_SYS_BOOT,
                CAP_SYS_TIME, CAP_DAC_READ_SEARCH, CAP_BPF, CAP_PERFMON, CAP_CHECKPOINT_RESTORE, CAP_SYSLOG}) {
    EXPECT_EQ(kGuestCapabilities >> c & 1, 0u) << c;
  }
  for (int c : {CAP_CHOWN, CAP_SETUID, CAP_SETGID, CAP_DAC_OVERRIDE, CAP_SETFCAP}) {
    EXPECT_EQ(kGuestCapabilities >> c & 1, 1u) << c;
  }
}

uint64_t StatusMask(const std::string& name) {
  std::ifstream in("/proc/self/status");
  std::string line;
  while (std::getline(in, line)) {
    if (line.starts_with(name + ":")) return std::stoull(line.substr(name.size() + 1), nullptr, 16);
  }
  return ~uint64_t{0};
}

TEST(GuestCapabilities, SetsAreExactlyTheGuestsInAUserNamespace) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  pid_t pid = ::fork();
  ASSERT_GE(pid, 0);
  if (pid == 0) {
    // As in a machine: full in the own user namespace, then limited.
    if (::unshare(CLONE_NEWUSER) != 0) ::_exit(1);
    if (::prctl(PR_CAPBSET_READ, CAP_SYS_ADMIN, 0, 0, 0) != 1) ::_exit(2);
    if (LimitCapabilitiesRaw(kGuestCapabilities) != 0) ::_exit(3);
    for (const char* set : {"CapPrm", "CapEff", "CapBnd"}) {
      if (StatusMask(set) != kGuestCapabilities) ::_exit(4);
    }
    for (const char* set : {"CapInh", "CapAmb"}) {
      if (StatusMask(set) != 0) ::_exit(5);
    }
    // Gone for good: neither by asking nor by exec as root.
    if (::unshare(CLONE_NEWNS) == 0) ::_exit(6);
    if (::prctl(PR_CAPBSET_READ, CAP_SYS_ADMIN, 0, 0, 0) != 0) ::_exit(7);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 0);
}

}  // namespace
}  // namespace sandbar::os
