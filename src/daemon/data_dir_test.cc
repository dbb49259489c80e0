#include "daemon/data_dir.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/files.h"
#include "cli/server_endpoint.h"

namespace sandbar::daemon {
namespace {

namespace fs = std::filesystem;

class DataDirTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "sandbar-data-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    dir_ = pattern;
  }
  void TearDown() override { fs::remove_all(dir_); }

  static mode_t Mode(const std::string& path) {
    struct stat st{};
    EXPECT_EQ(::stat(path.c_str(), &st), 0) << path;
    return st.st_mode & 07777;
  }
  // What another process makes of the directory: record locks do not exclude their own holder.
  static int InChild(const std::function<int()>& f) {
    pid_t pid = ::fork();
    if (pid == 0) ::_exit(f());
    int status = 0;
    EXPECT_EQ(::waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  std::string dir_;
};

TEST_F(DataDirTest, ASecretIsMadeOnceAndIsPrivate) {
  std::string path = dir_ + "/token";
  auto first = ReadOrMakeSecret(path, "sbt_");
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_THAT(*first, ::testing::StartsWith("sbt_"));
  EXPECT_GE(first->size(), 48u);
  EXPECT_EQ(Mode(path), 0600u);
  EXPECT_EQ(ReadOrMakeSecret(path, "sbt_").value(), *first);
  EXPECT_NE(ReadOrMakeSecret(dir_ + "/other", "sbt_").value(), *first);
}

TEST_F(DataDirTest, ADamagedSecretIsAnErrorNotANewOne) {
  std::ofstream(dir_ + "/token") << "short\n";
  EXPECT_FALSE(ReadOrMakeSecret(dir_ + "/token", "sbt_"));
}

TEST_F(DataDirTest, TheLockExcludesAnotherProcessAndNamesItsHolder) {
  EXPECT_EQ(LockHolder(dir_).value(), 0);
  {
    auto lock = LockDataDir(dir_);
    ASSERT_TRUE(lock) << lock.error().message;
    pid_t self = ::getpid();
    EXPECT_EQ(InChild([&] {
                auto second = LockDataDir(dir_);
                if (second || second.error().code != Code::kConflict) return 1;
                if (!second.error().message.contains(std::to_string(self))) return 2;
                return LockHolder(dir_).value_or(-1) == self ? 0 : 3;
              }),
              0);
  }
  EXPECT_EQ(InChild([&] { return LockDataDir(dir_) ? 0 : 1; }), 0);
}

TEST_F(DataDirTest, TheDaemonMayAddFilesButNotReplaceWhatTheSpawnerTrusts) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  constexpr uid_t kNobody = 65534;
  std::string data = dir_ + "/data";
  // The parent that mkdtemp made is closed to others.
  ASSERT_EQ(::chmod(dir_.c_str(), 0755), 0);
  ASSERT_TRUE(PrepareDataDir(data, {kNobody, kNobody}));
  std::string id = ReadFile(data + "/instance-id").value();
  ASSERT_TRUE(PrepareDataDir(data, {kNobody, kNobody}));
  EXPECT_EQ(ReadFile(data + "/instance-id").value(), id) << "made once";
  EXPECT_EQ(Mode(data), 01770u);
  EXPECT_EQ(Mode(data + "/logs"), 0700u);
  EXPECT_EQ(InChild([&] {
              if (::setgid(kNobody) != 0 || ::setuid(kNobody) != 0) return 1;
              if (!ReadOrMakeSecret(data + "/token", "")) return 2;
              if (::rename((data + "/run").c_str(), (data + "/mine").c_str()) == 0) return 3;
              if (::unlink((data + "/instance-id").c_str()) == 0) return 4;
              return ::access((data + "/run").c_str(), W_OK) == 0 ? 5 : 0;
            }),
            0);
}

TEST(LookUpUser, RootAndStrangersAreRefused) {
  EXPECT_FALSE(LookUpUser("root"));
  auto missing = LookUpUser("no-such-user-here");
  ASSERT_FALSE(missing);
  EXPECT_THAT(missing.error().message, ::testing::HasSubstr("useradd"));
}

}  // namespace
}  // namespace sandbar::daemon
