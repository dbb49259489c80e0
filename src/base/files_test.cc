#include "base/files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <filesystem>

#include "base/fd.h"

namespace sandbar {
namespace {

TEST(Files, ReadAndWrite) {
  const std::string path = testing::TempDir() + "files_test." + std::to_string(::getpid());
  const std::string bytes(200'000, 'x');
  Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  ASSERT_TRUE(WriteAll(file.get(), bytes));
  EXPECT_EQ(*ReadFile(path), bytes);
  EXPECT_EQ(*ReadFile(path, bytes.size()), bytes);
  EXPECT_EQ(ReadFile(path, bytes.size() - 1).error().code, Code::kTooLarge);
  std::filesystem::remove(path);
  auto missing = ReadFile(path);
  EXPECT_EQ(missing.error().sys_errno, ENOENT);
  EXPECT_TRUE(missing.error().message.starts_with(path));
  EXPECT_EQ(ReadFile("/").error().sys_errno, EISDIR);
}

TEST(Files, ReadsADescriptorToItsEnd) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  Fd reader(ends[0]), writer(ends[1]);
  ASSERT_TRUE(WriteAll(writer.get(), "four"));
  EXPECT_EQ(ReadAll(reader.get(), 3, "the pipe").error().message, "the pipe is larger than 3 bytes");
  ASSERT_TRUE(WriteAll(writer.get(), "four"));
  writer.Reset();
  EXPECT_EQ(*ReadAll(reader.get(), 4), "four");
  EXPECT_EQ(*ReadAll(reader.get(), 4), "");
  EXPECT_TRUE(ReadAll(-1, 4, "nothing").error().message.starts_with("nothing: "));
}

TEST(Files, ReaderGone) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  Fd reader(ends[0]), writer(ends[1]);
  reader.Reset();
  ::signal(SIGPIPE, SIG_IGN);
  EXPECT_EQ(WriteAll(writer.get(), "x").error().sys_errno, EPIPE);
}

}  // namespace
}  // namespace sandbar
