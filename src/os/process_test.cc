#include "os/process.h"

#include <gtest/gtest.h>
#include <linux/sched.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

namespace sandbar::os {
namespace {

std::optional<int> WaitFor(int pidfd) {
  pollfd p{pidfd, POLLIN, 0};
  SB_CHECK(::poll(&p, 1, 30'000) == 1);
  auto status = TryReap(pidfd);
  SB_CHECK(status.has_value());
  return *status;
}

TEST(Process, ExitStatusAndSignalsAsAShellReportsThem) {
  int fd = -1;
  pid_t pid = Clone3Raw(CLONE_PIDFD, &fd);
  if (pid == 0) ::_exit(7);
  Fd quick(fd);
  EXPECT_EQ(WaitFor(quick.get()), 7);
  pid = Clone3Raw(CLONE_PIDFD, &fd);
  if (pid == 0) {
    for (;;) ::pause();
  }
  Fd slow(fd);
  auto none = TryReap(slow.get());
  ASSERT_TRUE(none);
  EXPECT_FALSE(none->has_value());
  ASSERT_TRUE(SendSignal(slow.get(), SIGKILL));
  EXPECT_EQ(WaitFor(slow.get()), 137);
  EXPECT_TRUE(SendSignal(slow.get(), SIGKILL)) << "a dead process is no error";
}

TEST(Process, StartTimeNamesAProcess) {
  auto mine = ProcessStartTime(::getpid());
  ASSERT_TRUE(mine) << mine.error().message;
  EXPECT_GT(*mine, 0U);
  EXPECT_EQ(*mine, *ProcessStartTime(::getpid()));
  EXPECT_FALSE(ProcessStartTime(0x7ffffff0));
}

TEST(Process, ProgramsReportWhatWentWrong) {
  EXPECT_TRUE(RunProgram({"true"}));
  auto failed = RunProgram({"sh", "-c", "echo the reason >&2; exit 3"});
  ASSERT_FALSE(failed);
  EXPECT_NE(failed.error().message.find("the reason"), std::string::npos);
  EXPECT_FALSE(RunProgram({"no-such-program-here"}));
}

}  // namespace
}  // namespace sandbar::os
