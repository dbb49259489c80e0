#include "os/openat.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace sandbar::os {
namespace {

namespace fs = std::filesystem;

class OpenatTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = "/tmp/sandbar-openat-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    dir_ = pattern;
    auto fd = OpenPath(dir_, O_RDONLY | O_DIRECTORY);
    ASSERT_TRUE(fd);
    fd_ = std::move(*fd);
  }
  void TearDown() override { fs::remove_all(dir_); }
  std::string dir_;
  Fd fd_;
};

TEST_F(OpenatTest, NothingOutsideAndNoLinkIsReached) {
  fs::create_directories(dir_ + "/in/sub");
  std::ofstream(dir_ + "/in/sub/file") << "x";
  std::ofstream(dir_ + "/secret") << "s";
  fs::create_symlink("../secret", dir_ + "/in/up");
  fs::create_symlink("sub", dir_ + "/in/link");
  fs::create_symlink("/proc/self/root", dir_ + "/in/magic");
  auto in = OpenInside(fd_.get(), "in", O_PATH | O_DIRECTORY);
  ASSERT_TRUE(in);
  EXPECT_TRUE(OpenInside(in->get(), "sub/file", O_RDONLY));
  EXPECT_FALSE(OpenInside(in->get(), "up", O_RDONLY));
  EXPECT_FALSE(OpenInside(in->get(), "link/file", O_RDONLY));
  EXPECT_FALSE(OpenInside(in->get(), "magic/etc/passwd", O_RDONLY));
  // ".." stops at the root, so this is in/secret, which does not exist.
  EXPECT_FALSE(OpenInside(in->get(), "../secret", O_RDONLY));
  // With links allowed they still cannot leave.
  EXPECT_TRUE(OpenInRoot(in->get(), "link/file", O_RDONLY));
  EXPECT_FALSE(OpenInRoot(in->get(), "up", O_RDONLY));
  EXPECT_FALSE(OpenInRoot(in->get(), "magic/etc/passwd", O_RDONLY));
}

TEST_F(OpenatTest, RemovesTreesOfEveryShape) {
  fs::create_directories(dir_ + "/t/a/b");
  std::ofstream(dir_ + "/t/a/file") << "x";
  std::ofstream(dir_ + "/kept") << "x";
  fs::create_symlink(dir_ + "/kept", dir_ + "/t/a/link");
  fs::create_directories(dir_ + "/kept-dir/x");
  fs::create_symlink(dir_ + "/kept-dir", dir_ + "/t/dirlink");
  ASSERT_EQ(::mkfifo((dir_ + "/t/fifo").c_str(), 0600), 0);
  fs::create_directories(dir_ + "/t/closed");
  ::chmod((dir_ + "/t/closed").c_str(), 0);
  ASSERT_TRUE(RemoveTree(fd_.get(), "t"));
  EXPECT_FALSE(fs::exists(dir_ + "/t"));
  EXPECT_TRUE(fs::exists(dir_ + "/kept"));
  EXPECT_TRUE(fs::exists(dir_ + "/kept-dir/x"));
  EXPECT_TRUE(RemoveTree(fd_.get(), "never-there"));
  EXPECT_TRUE(RemoveTree(fd_.get(), "kept"));
  EXPECT_FALSE(fs::exists(dir_ + "/kept"));
}

TEST_F(OpenatTest, ATreeDeeperThanAnyPathIsRemoved) {
  auto at = OpenInside(fd_.get(), ".", O_RDONLY | O_DIRECTORY);
  ASSERT_TRUE(at);
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(::mkdirat(at->get(), "d", 0700), 0);
    auto next = OpenInside(at->get(), "d", O_RDONLY | O_DIRECTORY);
    ASSERT_TRUE(next);
    at = std::move(next);
  }
  auto removed = RemoveTree(fd_.get(), "d");
  EXPECT_TRUE(removed) << removed.error().message;
  EXPECT_TRUE(fs::is_empty(dir_));
}

TEST_F(OpenatTest, ReadsAreBounded) {
  std::ofstream(dir_ + "/f") << std::string(1000, 'x');
  EXPECT_EQ(ReadFile(dir_ + "/f", 1000)->size(), 1000U);
  EXPECT_EQ(ReadFile(dir_ + "/f", 999).error().code, Code::kTooLarge);
  EXPECT_EQ(ReadFile("/dev/zero", 4096).error().code, Code::kTooLarge);
}

TEST_F(OpenatTest, ReplacesFilesButNeverWritesThroughLinks) {
  std::ofstream(dir_ + "/target") << "old";
  fs::create_symlink("target", dir_ + "/f");
  ASSERT_TRUE(WriteFileAt(fd_.get(), "f", "new", 0640));
  EXPECT_EQ(*ReadFile(dir_ + "/target", 10), "old");
  EXPECT_EQ(*ReadFile(dir_ + "/f", 10), "new");
  struct stat st{};
  ASSERT_EQ(::lstat((dir_ + "/f").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777, 0640U);
  EXPECT_TRUE(S_ISREG(st.st_mode));
}

}  // namespace
}  // namespace sandbar::os
