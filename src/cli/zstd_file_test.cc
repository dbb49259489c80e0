#include "cli/zstd_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

namespace sandbar::cli {
namespace {

class ZstdFile : public testing::Test {
 protected:
  void TearDown() override { ::unlink(path_.c_str()); }
  Fd Open(int flags) const { return Fd(::open(path_.c_str(), flags | O_CLOEXEC, 0600)); }
  Result<std::string> ReadBack() const {
    ZstdReader in(Open(O_RDONLY));
    std::string all;
    for (;;) {
      SB_TRY(std::string piece, in.Read());
      if (piece.empty()) return all;
      all += piece;
    }
  }
  std::string path_ = std::filesystem::temp_directory_path() / ("sandbar-zstd-" + std::to_string(::getpid()));
};

TEST_F(ZstdFile, WhatWasWrittenIsRead) {
  std::string text;
  for (int i = 0; i < 200'000; ++i) text += std::to_string(i * 7919);
  {
    ZstdWriter out(Open(O_WRONLY | O_CREAT | O_TRUNC));
    ASSERT_TRUE(out.Write(text.substr(0, 1000)));
    ASSERT_TRUE(out.Write(text.substr(1000)));
    ASSERT_TRUE(out.Finish());
  }
  auto back = ReadBack();
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(*back, text);
  const auto size = std::filesystem::file_size(path_);
  EXPECT_LT(size, text.size());
  // Cut short, and not one at all.
  ASSERT_EQ(::truncate(path_.c_str(), static_cast<off_t>(size / 2)), 0);
  EXPECT_FALSE(ReadBack());
  {
    Fd plain = Open(O_WRONLY | O_TRUNC);
    ASSERT_EQ(::write(plain.get(), "plain text", 10), 10);
  }
  EXPECT_FALSE(ReadBack());
}

}  // namespace
}  // namespace sandbar::cli
