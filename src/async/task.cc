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
