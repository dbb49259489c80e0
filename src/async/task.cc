#include "async/task.h"

#include <boost/asio/error.hpp>
#include <boost/system/system_error.hpp>

namespace sandbar {
namespace {

constexpr std::chrono::milliseconds kCancelAgain{20};

}  // namespace

Error FromAsio(const boost::system::error_code& ec, std::string_view doing) {
  Code code = Code::kIo;
  if (ec == asio::error::operation_aborted) {
    code = Code::kCancelled;
  } else if (ec == asio::error::eof || ec == asio::error::connection_reset || ec == asio::error::broken_pipe) {
    code = Code::kClosed;
  }
  return Error{code, std::string(doing) + ": " + ec.message(), ec.value()};
}

bool IsCancellation(const std::exception_ptr& e) {
  try {
    std::rethrow_exception(e);
  } catch (const boost::system::system_error& error) {
    return error.code() == asio::error::operation_aborted;
  } catch (...) {
    return false;
  }
}

Task<> Sleep(std::chrono::nanoseconds d) {
  auto ex = co_await asio::this_coro::executor;
  asio::steady_timer timer(ex, d);
  auto [ec] = co_await timer.async_wait(kToken);
  if (ec) co_return std::unexpected(FromAsio(ec, "sleep"));
  co_return Result<>{};
}

Task<> Yield() {
  auto ex = co_await asio::this_coro::executor;
  co_await asio::post(ex, kToken);
  auto state = co_await asio::this_coro::cancellation_state;
  if (state.cancelled() != asio::cancellation_type::none) co_return Fail(Code::kCancelled, "cancelled");
  co_return Result<>{};
}

namespace detail {

Task<> RunUntil(asio::awaitable<void> work, std::chrono::nanoseconds d) {
  using namespace asio::experimental::awaitable_operators;
  auto ex = co_await asio::this_coro::executor;
  asio::steady_timer timer(ex, d);
  auto r = co_await (std::move(work) || timer.async_wait(kToken));
  if (r.index() == 0) co_return Result<>{};
  auto state = co_await asio::this_coro::cancellation_state;
  if (state.cancelled() != asio::cancellation_type::none) co_return Fail(Code::kCancelled, "cancelled");
  co_return Fail(Code::kTimeout, "deadline exceeded");
}

asio::awaitable<void> RunOn(asio::thread_pool* pool, std::function<void()> f) {
  auto init = [pool](auto handler, std::function<void()> fn) {
    asio::post(*pool, [h = std::move(handler), fn = std::move(fn)]() mutable {
      fn();
      auto ex = asio::get_associated_executor(h);
      asio::post(ex, [h = std::move(h)]() mutable { std::move(h)(); });
    });
  };
  co_await asio::async_initiate<const asio::use_awaitable_t<>&, void()>(init, asio::use_awaitable, std::move(f));
}

}  // namespace detail

void TaskGroup::Spawn(Task<> t) {
  auto it = live_.emplace(live_.end(), std::make_unique<asio::cancellation_signal>());
  asio::co_spawn(ex_, std::move(t),
                 asio::bind_cancellation_slot((*it)->slot(), [this, it](std::exception_ptr e, const Result<>& r) {
                   if (e) SB_BUG("exception escaped a task");
                   if (!e && !r && r.error().code != Code::kCancelled) log::Debug("task ended: {}", r.error().message);
                   live_.erase(it);
                   if (live_.empty()) idle_.cancel();
                 }));
}

asio::awaitable<void> TaskGroup::Join() {
  while (!live_.empty()) co_await idle_.async_wait(kToken);
}

asio::awaitable<void> TaskGroup::Close() {
  using namespace asio::experimental::awaitable_operators;
  asio::steady_timer again(ex_);
  while (!live_.empty()) {
    Cancel();
    again.expires_after(kCancelAgain);
    co_await (Join() || again.async_wait(kToken));
  }
}

Task<> Event::Wait() {
  // Being woken *is* the timer's cancellation, so its error says nothing; only our own cancellation does.
  co_await timer_.async_wait(kToken);
  auto state = co_await asio::this_coro::cancellation_state;
  if (state.cancelled() != asio::cancellation_type::none) co_return Fail(Code::kCancelled, "cancelled");
  co_return Result<>{};
}

}  // namespace sandbar
