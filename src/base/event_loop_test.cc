#include "base/event_loop.h"

#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <array>
#include <vector>

namespace sandbar {
namespace {

using std::chrono::milliseconds;

struct Pipe {
  Pipe() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::pipe(ends.data()), 0);
    read = Fd(ends[0]);
    write = Fd(ends[1]);
  }
  void Fill() const { EXPECT_EQ(::write(write.get(), "x", 1), 1); }
  Fd read, write;
};

TEST(EventLoop, ARoundCallsWhatIsReadyAndSaysHowMany) {
  EventLoop loop;
  Pipe ready, silent;
  int called = 0;
  FdWatch first = loop.Add(ready.read.get(), EPOLLIN, [&](uint32_t events) {
    EXPECT_NE(events & EPOLLIN, 0U);
    ++called;
  });
  FdWatch second = loop.Add(silent.read.get(), EPOLLIN, [&](uint32_t) { FAIL(); });
  EXPECT_EQ(loop.RunOnce(0), 0U);
  ready.Fill();
  EXPECT_EQ(loop.RunOnce(-1), 1U);
  EXPECT_EQ(called, 1);
  first.Set(0);
  EXPECT_EQ(loop.RunOnce(0), 0U);
  first.Set(EPOLLIN);
  EXPECT_EQ(loop.RunOnce(0), 1U);
}

TEST(EventLoop, AWatchThatWasRemovedInTheSameRoundIsNotCalled) {
  EventLoop loop;
  Pipe one, other;
  std::vector<FdWatch> watches(2);
  int called = 0;
  // Whichever is called first removes both, its own included.
  auto remove = [&](uint32_t) {
    ++called;
    watches.clear();
  };
  watches[0] = loop.Add(one.read.get(), EPOLLIN, remove);
  watches[1] = loop.Add(other.read.get(), EPOLLIN, remove);
  one.Fill();
  other.Fill();
  EXPECT_EQ(loop.RunOnce(-1), 2U);
  EXPECT_EQ(called, 1);
}

TEST(EventLoop, ARefusedWatchIsAnError) {
  EventLoop loop;
  auto closed = loop.TryAdd(-1, EPOLLIN, [](uint32_t) {});
  ASSERT_FALSE(closed);
  EXPECT_EQ(closed.error().sys_errno, EBADF);
  Pipe pipe;
  FdWatch watch = loop.Add(pipe.read.get(), EPOLLIN, [](uint32_t) {});
  EXPECT_FALSE(loop.TryAdd(pipe.read.get(), EPOLLIN, [](uint32_t) {})) << "a descriptor has one watch";
  pipe.Fill();
  EXPECT_EQ(loop.RunOnce(0), 1U) << "the first watch is untouched";
}

TEST(EventLoop, ATimerEndsTheWait) {
  EventLoop loop;
  bool fired = false;
  LoopTimer soon = loop.After(milliseconds(1), [&] { fired = true; });
  LoopTimer never = loop.After(milliseconds(1), [&] { FAIL(); });
  never.Reset();
  loop.Run([&] { return fired; });
  EXPECT_TRUE(fired);
}

}  // namespace
}  // namespace sandbar
