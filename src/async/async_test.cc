#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <latch>
#include <memory>
#include <optional>
#include <thread>

#include "async/task.h"
#include "async/unless.h"

namespace sandbar {
namespace {

using namespace std::chrono_literals;

// Runs a task to its end on a fresh loop.
template <class T>
Result<T> RunTask(Task<T> task) {
  asio::io_context io(1);
  std::optional<Result<T>> out;
  asio::co_spawn(io, std::move(task), [&out](std::exception_ptr e, Result<T> r) {
    ASSERT_FALSE(e);
    out = std::move(r);
  });
  io.run();
  return *std::move(out);
}

Task<int> Never(std::shared_ptr<int> alive) {
  SB_CO_TRYV(co_await Sleep(24h));
  co_return *alive;
}

Task<int> TimedOut() {
  auto alive = std::make_shared<int>(1);
  std::weak_ptr<int> watch = alive;
  auto never = Never(std::move(alive));
  auto r = co_await WithTimeout(std::move(never), 1ms);
  EXPECT_TRUE(watch.expired()) << "the cancelled task must be gone when WithTimeout returns";
  co_return r;
}

TEST(Async, WithTimeoutCancelsAtTheLeaf) {
  auto r = RunTask(TimedOut());
  ASSERT_FALSE(r.has_value());
  EXPECT_EQ(r.error().code, Code::kTimeout);
}

Task<std::string> Quick(bool works) {
  SB_CO_TRYV(co_await Sleep(1ms));
  if (!works) co_return Fail(Code::kNotFound, "nothing there");
  co_return "there";
}

Task<int> CutOff() {
  auto alive = std::make_shared<int>(1);
  std::weak_ptr<int> watch = alive;
  auto never = Never(std::move(alive));
  auto end = Sleep(1ms);
  auto r = co_await Unless(std::move(never), std::move(end));
  EXPECT_TRUE(watch.expired()) << "the cancelled task must be gone when Unless returns";
  co_return r;
}

TEST(Async, UnlessCancelsTheTaskWhenTheOtherOneCompletes) {
  auto r = RunTask(CutOff());
  ASSERT_FALSE(r);
  EXPECT_EQ(r.error().code, Code::kTimeout);
}

TEST(Async, UnlessPassesOnWhatCameFirst) {
  EXPECT_EQ(*RunTask(Unless(Quick(true), Sleep(24h))), "there");
  auto failed = RunTask(Unless(Quick(false), Sleep(24h)));
  ASSERT_FALSE(failed);
  EXPECT_NE(failed.error().code, Code::kTimeout);
}

TEST(Async, WithTimeoutPassesOnWhatCameInTime) {
  EXPECT_EQ(*RunTask(WithTimeout(Quick(true), 24h)), "there");
  auto failed = RunTask(WithTimeout(Quick(false), 24h));
  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(failed.error().code, Code::kNotFound);
  EXPECT_TRUE(RunTask(WithTimeout(Sleep(1ms), 24h)).has_value());
}

Task<> WaitLong(std::optional<Code>* code) {
  auto never = Never(std::make_shared<int>(1));
  auto r = co_await WithTimeout(std::move(never), 48h);
  if (!r) *code = r.error().code;
  co_return Result<>{};
}

Task<> CancelWaiting(std::optional<Code>* code) {
  auto ex = co_await asio::this_coro::executor;
  TaskGroup group(ex);
  group.Spawn(WaitLong(code));
  SB_CO_TRYV(co_await Sleep(1ms));
  co_await group.Close();
  co_return Result<>{};
}

TEST(Async, ACancelledWaitIsNoTimeout) {
  std::optional<Code> code;
  EXPECT_TRUE(RunTask(CancelWaiting(&code)).has_value());
  EXPECT_EQ(code, Code::kCancelled);
}

Task<int> Offloaded(asio::thread_pool* pool) {
  auto caller = std::this_thread::get_id();
  auto work = [caller] { return std::this_thread::get_id() == caller ? 0 : 42; };
  int r = co_await Offload(*pool, work);
  EXPECT_EQ(std::this_thread::get_id(), caller);
  co_return r;
}

TEST(Async, OffloadRunsElsewhereAndResumesHere) {
  asio::thread_pool pool(1);
  EXPECT_EQ(*RunTask(Offloaded(&pool)), 42);
  pool.join();
}

Task<> CountUp(Event* go, const bool* ready, int* count) {
  while (!*ready) SB_CO_TRYV(co_await go->Wait());
  ++*count;
  co_return Result<>{};
}

Task<> Groups() {
  auto ex = co_await asio::this_coro::executor;
  Event go(ex);
  bool ready = false;
  int count = 0;
  TaskGroup group(ex);
  for (int i = 0; i < 1000; ++i) group.Spawn(CountUp(&go, &ready, &count));
  SB_CO_TRYV(co_await Sleep(1ms));
  go.Notify();  // a wake-up without the predicate: nobody may pass
  SB_CO_TRYV(co_await Sleep(1ms));
  EXPECT_EQ(count, 0);
  ready = true;
  go.Notify();
  co_await group.Join();
  EXPECT_EQ(count, 1000);

  ready = false;
  for (int i = 0; i < 1000; ++i) group.Spawn(CountUp(&go, &ready, &count));
  SB_CO_TRYV(co_await Sleep(1ms));
  co_await group.Close();
  EXPECT_EQ(count, 1000) << "cancelled waiters must not pass";
  EXPECT_EQ(group.size(), 0U);
  co_return Result<>{};
}

TEST(Async, GroupsCancelAndJoin) {
  EXPECT_TRUE(RunTask(Groups()).has_value());
}

// Hears no cancellation while the pool works, so the only thing that can end its long sleep is a second one.
Task<> WorkThenSleep(asio::thread_pool* pool, std::latch* working, std::latch* go, bool* slept_through) {
  co_await asio::this_coro::throw_if_cancelled(false);
  auto work = [working, go] {
    working->count_down();
    go->wait();
    return 0;
  };
  co_await Offload(*pool, work);
  auto slept = co_await Sleep(10s);
  *slept_through = slept.has_value();
  co_return Result<>{};
}

Task<> LetGo(std::latch* go) {
  go->count_down();
  co_return Result<>{};
}

Task<> CloseWhileOffloaded(asio::thread_pool* pool, bool* slept_through) {
  auto ex = co_await asio::this_coro::executor;
  std::latch working(1);
  std::latch go(1);
  TaskGroup group(ex);
  group.Spawn(WorkThenSleep(pool, &working, &go, slept_through));
  SB_CO_TRYV(co_await Sleep(1ms));
  working.wait();
  TaskGroup helper(ex);
  helper.Spawn(LetGo(&go));  // runs once Close has cancelled and waits
  co_await group.Close();
  co_await helper.Close();
  co_return Result<>{};
}

TEST(Async, CloseEndsATaskThatCouldNotHearTheFirstCancellation) {
  asio::thread_pool pool(1);
  bool slept_through = true;
  EXPECT_TRUE(RunTask(CloseWhileOffloaded(&pool, &slept_through)).has_value());
  EXPECT_FALSE(slept_through);
  pool.join();
}

}  // namespace
}  // namespace sandbar
