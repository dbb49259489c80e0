// Every attack in a real machine, as root of the machine and as a user; then what the machine left on the host.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "attack_machine.h"

namespace sandbar {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

class Attacks : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root";
    auto machine = AttackMachine::Start();
    ASSERT_TRUE(machine) << machine.error().message;
    machine_ = std::move(*machine);
  }
  spawner::UsageResp Usage() {
    auto usage = machine_->client().Call(spawner::UsageReq{"m1"});
    EXPECT_TRUE(usage) << usage.error().message;
    return usage ? std::get<spawner::UsageResp>(usage->body) : spawner::UsageResp{};
  }
  std::unique_ptr<AttackMachine> machine_;
};

size_t AttackCount(AttackMachine& machine) {
  const std::string list = machine.Shell("attacks list");
  // The last line is the exit status.
  return static_cast<size_t>(std::count(list.begin(), list.end(), '\n')) - 1;
}

TEST_F(Attacks, AllFailForRoot) {
  AttackReport report = machine_->Run("all", AttackMachine::kRoot);
  EXPECT_THAT(report.failed, IsEmpty());
  EXPECT_THAT(report.skipped, IsEmpty());
  EXPECT_EQ(report.passed.size(), AttackCount(*machine_)) << report.text;
  EXPECT_GT(report.passed.size(), 80u);
}

TEST_F(Attacks, AllFailForAUser) {
  AttackReport report = machine_->Run("all", AttackMachine::kUser);
  EXPECT_THAT(report.failed, IsEmpty());
  EXPECT_THAT(report.skipped, IsEmpty());
  EXPECT_EQ(report.passed.size(), AttackCount(*machine_)) << report.text;
}

TEST_F(Attacks, BombsHitOnlyThemselves) {
  EXPECT_THAT(machine_->Shell("attacks bomb-fork"), HasSubstr("PASS bombs.fork"));
  EXPECT_THAT(machine_->Shell("attacks bomb-memory"), HasSubstr("PASS bombs.memory"));
  EXPECT_GE(Usage().oom_kills, 1u);
  EXPECT_THAT(machine_->Shell("attacks fill-disk /"), HasSubstr("PASS bombs.disk"));
  EXPECT_THAT(machine_->Shell("attacks agent.alive"), HasSubstr("PASS agent.alive"));
  EXPECT_EQ(machine_->Shell("echo still here"), "still here\nexit:0\n");
}

// The file is root's and setuid on the host's disk (owners are stored as the machine sees them), so where it lies
// decides: below a directory only root enters, on a mount without setuid, devices and programs.
TEST_F(Attacks, ASetuidFileLeftInTheStoreIsUselessOnTheHost) {
  ASSERT_THAT(machine_->Shell("attacks plant-setuid /planted"), HasSubstr("PASS bombs.setuid"));
  const std::string upper = machine_->host().UpperOf("m1");
  ASSERT_FALSE(upper.empty());
  const std::string planted = upper + "/planted";
  struct stat st{};
  ASSERT_EQ(::stat(planted.c_str(), &st), 0) << planted;
  EXPECT_NE(st.st_mode & S_ISUID, 0u) << "the test no longer tests anything";
  pid_t pid = ::fork();
  ASSERT_GE(pid, 0);
  if (pid == 0) {
    // With root's own reach first: the mount must refuse to execute.
    ::execl(planted.c_str(), planted.c_str(), "list", nullptr);
    if (errno != EACCES && errno != EPERM) ::_exit(1);
    if (::setresgid(65000, 65000, 65000) != 0 || ::setresuid(65000, 65000, 65000) != 0) ::_exit(2);
    ::execl(planted.c_str(), planted.c_str(), "list", nullptr);
    ::_exit(::open(planted.c_str(), O_RDONLY | O_CLOEXEC) >= 0 ? 3 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 0);
}

}  // namespace
}  // namespace sandbar
