// The only door to Asio's core: Task, TaskGroup, timeouts, offloading.
//
// A coroutine returns Task<T> (an awaitable Result<T>). House rule, which keeps g++ 12 right too: one co_await per
// statement, every argument of class type is a named local, no braces, capturing lambda or ?: in an awaiting statement.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include "base/log.h"
#include "base/result.h"

namespace sandbar {

namespace asio = boost::asio;

template <class T = void>
using Task = asio::awaitable<Result<T>>;

// Completion token: co_await op(…, kToken) yields a tuple (error_code, values…), never throws.
inline constexpr auto kToken = asio::as_tuple(asio::use_awaitable);

// Error for a failed Asio operation: cancellation, end of stream and everything else are told apart.
Error FromAsio(const boost::system::error_code& ec, std::string_view doing);

// Asio throws this at the next co_await of a task whose cancellation arrived together with a success.
bool IsCancellation(const std::exception_ptr& e);

Task<> Sleep(std::chrono::nanoseconds d);

// Lets everything else on the loop run first; kCancelled when the task was cancelled meanwhile.
Task<> Yield();

namespace detail {
// Runs `work` until it ends or the time is over. An error, kTimeout or kCancelled, says that `work` did not end first.
// The race is compiled once, in task.cc: Asio's templates for it cost a file more than everything else in it.
Task<> RunUntil(asio::awaitable<void> work, std::chrono::nanoseconds d);

template <class T>
asio::awaitable<void> Keep(Task<T> task, std::optional<Result<T>>* out) {
  Result<T> r = co_await std::move(task);
  out->emplace(std::move(r));
}
}  // namespace detail

template <class T>
Task<T> WithTimeout(Task<T> task, std::chrono::nanoseconds d) {
  std::optional<Result<T>> out;
  asio::awaitable<void> work = detail::Keep(std::move(task), &out);
  auto in_time = co_await detail::RunUntil(std::move(work), d);
  if (!in_time) co_return std::unexpected(std::move(in_time).error());
  co_return *std::move(out);
}

namespace detail {
// Runs `f` on `pool` and resumes here. Compiled once, as above.
asio::awaitable<void> RunOn(asio::thread_pool* pool, std::function<void()> f);
}  // namespace detail

// Runs blocking `f` (returns any value, usually a Result) on `pool`, which outlives the call, and resumes here with its
// value.
template <class F>
// NOLINTNEXTLINE(cppcoreguidelines-avoid-reference-coroutine-parameters): pools live as long as the program
asio::awaitable<std::invoke_result_t<F>> Offload(asio::thread_pool& pool, F f) {
  // Both live until the pool is done: what runs there owns this coroutine meanwhile.
  std::optional<std::invoke_result_t<F>> out;
  std::function<void()> work = [&out, &f] { out.emplace(f()); };
  co_await detail::RunOn(&pool, std::move(work));
  co_return *std::move(out);
}

// Owns spawned tasks. Declare it last in its owner; Close() (cancel, then join) before the owner dies.
class TaskGroup {
 public:
  explicit TaskGroup(asio::any_io_executor ex)
      : ex_(std::move(ex)), idle_(ex_, asio::steady_timer::time_point::max()) {}
  TaskGroup(const TaskGroup&) = delete;
  TaskGroup& operator=(const TaskGroup&) = delete;
  ~TaskGroup() {
    if (!live_.empty()) std::terminate();
  }

  void Spawn(Task<> t);
  // Cancels every task and waits for the last one to end. Cancels again and again: an operation that cannot be
  // cancelled (Offload) swallows the signal, and what its task awaits next would never hear of it.
  asio::awaitable<void> Close();
  void Cancel() {
    auto n = live_.size();
    auto it = live_.begin();
    while (n-- != 0 && it != live_.end()) {
      auto cur = it++;
      (*cur)->emit(asio::cancellation_type::all);
    }
  }
  asio::awaitable<void> Join();
  size_t size() const { return live_.size(); }
  const asio::any_io_executor& executor() const { return ex_; }

 private:
  asio::any_io_executor ex_;
  asio::steady_timer idle_;
  std::list<std::unique_ptr<asio::cancellation_signal>> live_;
};

// A condition that coroutines of one loop wait for: Notify wakes every waiter; waiters re-check their predicate.
class Event {
 public:
  explicit Event(const asio::any_io_executor& ex) : timer_(ex, asio::steady_timer::time_point::max()) {}
  void Notify() { timer_.cancel(); }
  // Returns kCancelled when the waiting task itself was cancelled.
  Task<> Wait();

 private:
  asio::steady_timer timer_;
};

}  // namespace sandbar
