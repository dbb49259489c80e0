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
#include <list>
#include <memory>
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

template <class T>
Task<T> WithTimeout(Task<T> task, std::chrono::nanoseconds d) {
  using namespace asio::experimental::awaitable_operators;
  auto ex = co_await asio::this_coro::executor;
  asio::steady_timer timer(ex, d);
  auto r = co_await (std::move(task) || timer.async_wait(kToken));
  if (r.index() == 1) {
    auto state = co_await asio::this_coro::cancellation_state;
    if (state.cancelled() != asio::cancellation_type::none) co_return Fail(Code::kCancelled, "cancelled");
    co_return Fail(Code::kTimeout, "deadline exceeded");
  }
  co_return std::get<0>(std::move(r));
}

// Runs blocking `f` (returns any value, usually a Result) on `pool`, which outlives the call, and resumes here with its
// value.
template <class F>
// NOLINTNEXTLINE(cppcoreguidelines-avoid-reference-coroutine-parameters): pools live as long as the program
asio::awaitable<std::invoke_result_t<F>> Offload(asio::thread_pool& pool, F f) {
  using R = std::invoke_result_t<F>;
  auto init = [&pool](auto handler, F fn) {
    asio::post(pool, [h = std::move(handler), fn = std::move(fn)]() mutable {
      auto r = fn();
      auto ex = asio::get_associated_executor(h);
      asio::post(ex, [h = std::move(h), r = std::move(r)]() mutable { std::move(h)(std::move(r)); });
    });
  };
  R out =
      co_await asio::async_initiate<const asio::use_awaitable_t<>&, void(R)>(init, asio::use_awaitable, std::move(f));
  co_return out;
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

  void Spawn(Task<> t) {
    auto it = live_.emplace(live_.end(), std::make_unique<asio::cancellation_signal>());
    asio::co_spawn(ex_, std::move(t),
                   asio::bind_cancellation_slot((*it)->slot(), [this, it](std::exception_ptr e, const Result<>& r) {
                     if (e) SB_BUG("exception escaped a task");
                     if (!e && !r && r.error().code != Code::kCancelled)
                       log::Debug("task ended: {}", r.error().message);
                     live_.erase(it);
                     if (live_.empty()) idle_.cancel();
                   }));
  }
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
  asio::awaitable<void> Join() {
    while (!live_.empty()) co_await idle_.async_wait(kToken);
  }
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
