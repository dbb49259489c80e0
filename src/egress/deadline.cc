#include "egress/deadline.h"

namespace sandbar::egress {

Task<> Deadline::Passed() {
  while (Clock::now() < at_) {
    timer_.expires_at(at_);
    co_await timer_.async_wait(kToken);
    auto state = co_await asio::this_coro::cancellation_state;
    if (state.cancelled() != asio::cancellation_type::none) co_return Fail(Code::kCancelled, "cancelled");
  }
  co_return Result<>{};
}

}  // namespace sandbar::egress
