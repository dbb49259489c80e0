#include "async/unless.h"

namespace sandbar::detail {

Task<> RunUnless(asio::awaitable<void> work, Task<> end) {
  using namespace asio::experimental::awaitable_operators;
  auto first = co_await (std::move(work) || std::move(end));
  if (first.index() == 0) co_return Result<>{};
  auto state = co_await asio::this_coro::cancellation_state;
  if (state.cancelled() != asio::cancellation_type::none) co_return Fail(Code::kCancelled, "cancelled");
  co_return Fail(Code::kTimeout, "cut off");
}

}  // namespace sandbar::detail
