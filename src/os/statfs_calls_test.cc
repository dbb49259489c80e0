#include "os/statfs_calls.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <functional>

namespace sandbar::os {
namespace {

// The status of a child that ran this.
int InChild(const std::function<int()>& run) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(run());
  int status = 0;
  if (::waitpid(pid, &status, 0) != pid || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

// Answers so many calls of one process, and tells how that ended.
int AnswerAll(int listener, pid_t pid, int calls, int error) {
  for (int i = 0; i < calls; ++i) {
    pollfd p{listener, POLLIN, 0};
    if (::poll(&p, 1, 30'000) != 1) return 100;
    seccomp_notif call{};
    if (!ReceiveCall(listener, &call)) return 101;
    if (call.pid != static_cast<uint32_t>(pid) || !CallWaits(listener, call.id)) return 102;
    AnswerCall(listener, call.id, error);
    if (CallWaits(listener, call.id)) return 103;
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 104;
}

TEST(StatfsCallsTest, TheHolderAnswersBothCallsAndNoOther) {
  const int status = InChild([] {
    ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);  // for a test without root
    auto calls = TakeStatfsCalls();
    if (!calls) return 1;
    WakeInTurns(calls->listener.get());
    const pid_t pid = ::fork();
    if (pid == 0) {
      struct statfs fs{};
      struct stat st{};
      if (::statfs("/", &fs) != -1 || errno != EXDEV) ::_exit(2);
      if (::fstatfs(0, &fs) != -1 || errno != EXDEV) ::_exit(3);
      ::_exit(::stat("/", &st) == 0 ? 0 : 4);
    }
    return AnswerAll(calls->listener.get(), pid, 2, -EXDEV);
  });
  EXPECT_EQ(status, 0);
}

TEST(StatfsCallsTest, ASecondHolderIsRefused) {
  const int status = InChild([] {
    ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (!CanTakeStatfsCalls()) return 1;
    auto calls = TakeStatfsCalls();
    if (!calls) return 2;
    return CanTakeStatfsCalls() ? 3 : 0;
  });
  EXPECT_EQ(status, 0);
}

TEST(StatfsCallsTest, OnlyTheKeyReachesTheKernel) {
  const int status = InChild([] {
    ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    const int root = ::open("/", O_PATH);
    struct statfs before{};
    if (::fstatfs(root, &before) != 0) return 1;
    auto calls = TakeStatfsCalls();
    if (!calls || calls->key == StatfsKey{}) return 2;
    struct statfs fs{};
    if (RealFstatfs(root, &fs, calls->key) != 0 || fs.f_type != before.f_type) return 3;
    const pid_t pid = ::fork();
    if (pid == 0) {
      for (size_t half = 0; half < 4; ++half) {
        StatfsKey wrong = calls->key;
        wrong[half / 2] ^= uint64_t{1} << (half % 2 * 32);
        if (RealFstatfs(root, &fs, wrong) != -1 || errno != EXDEV) ::_exit(4);
      }
      // The other call has no key.
      if (::syscall(SYS_statfs, "/", &fs, 0, 0, calls->key[0], calls->key[1]) != -1 || errno != EXDEV) ::_exit(5);
      ::_exit(0);
    }
    return AnswerAll(calls->listener.get(), pid, 5, -EXDEV);
  });
  EXPECT_EQ(status, 0);
}

TEST(StatfsCallsTest, AProcessThatWaitsForAnAnswerCanBeKilled) {
  const int status = InChild([] {
    ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    auto calls = TakeStatfsCalls();
    if (!calls) return 1;
    const pid_t pid = ::fork();
    if (pid == 0) {
      struct statfs fs{};
      ::_exit(::statfs("/", &fs));
    }
    seccomp_notif call{};
    if (!ReceiveCall(calls->listener.get(), &call)) return 2;
    ::kill(pid, SIGKILL);
    int ended = 0;
    if (::waitpid(pid, &ended, 0) != pid || !WIFSIGNALED(ended)) return 3;
    if (CallWaits(calls->listener.get(), call.id)) return 4;
    AnswerCall(calls->listener.get(), call.id, 0);  // nobody hears it
    return 0;
  });
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace sandbar::os
