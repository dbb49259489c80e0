#include "cli/local_input.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <thread>

#include "base/fd.h"

namespace sandbar::cli {
namespace {

class LocalInputTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int ends[2];
    ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    out_ = Fd(ends[0]);
    in_ = Fd(ends[1]);
  }
  void Write(std::string_view bytes) {
    ASSERT_EQ(::write(in_.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  }
  // Everything, until the input ends.
  static std::string ReadAll(int fd) {
    asio::io_context io(1);
    auto work = asio::make_work_guard(io);
    std::string all;
    std::optional<LocalInput> input;
    input.emplace(io.get_executor(), fd, [&] {
      all += input->Take(1 << 20);
      if (input->ended()) work.reset();
    });
    io.run();
    return all;
  }

  Fd out_, in_;
};

TEST_F(LocalInputTest, APipe) {
  std::thread writer([this] {
    for (int i = 0; i < 1000; ++i) Write(std::string(1000, static_cast<char>('a' + i % 26)));
    in_.Reset();
  });
  const std::string all = ReadAll(out_.get());
  writer.join();
  ASSERT_EQ(all.size(), 1'000'000u);
  for (size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], static_cast<char>('a' + i / 1000 % 26));
}

TEST_F(LocalInputTest, ADescriptorThatIsNotOpenHasEnded) {
  constexpr int kUnused = 1000;  // and nothing that the loop opens gets it
  EXPECT_EQ(ReadAll(kUnused), "");
}

TEST_F(LocalInputTest, DestroyedWhileItWaits) {
  asio::io_context io(1);
  {
    const LocalInput input(io.get_executor(), out_.get(), [] { FAIL(); });
  }
  Write("for nobody");
  io.run();
}

TEST_F(LocalInputTest, LeavesTheDescriptorBlocking) {
  Write("x");
  in_.Reset();
  EXPECT_EQ(ReadAll(out_.get()), "x");
  EXPECT_EQ(::fcntl(out_.get(), F_GETFL) & O_NONBLOCK, 0);
}

TEST_F(LocalInputTest, WhatCanBeRead) {
  EXPECT_TRUE(IsReadable(out_.get()));
  EXPECT_FALSE(IsReadable(in_.get()));
  const Fd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  EXPECT_FALSE(IsReadable(null.get()));
  const Fd zero(::open("/dev/zero", O_RDONLY | O_CLOEXEC));
  EXPECT_TRUE(IsReadable(zero.get()));
  EXPECT_FALSE(IsReadable(-1));
}

}  // namespace
}  // namespace sandbar::cli
