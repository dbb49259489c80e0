// CheckCancelled, for coroutines with throw_if_cancelled(false) that loop over operations. A cancellation that arrives
// together with the success of an operation ends nothing, and the coroutine would start the next operation and wait for
// ever. So it asks between two operations. Single loop.
#pragma once

#include "async/task.h"

namespace sandbar {

inline Task<> CheckCancelled() {
  auto state = co_await asio::this_coro::cancellation_state;
  if (state.cancelled() != asio::cancellation_type::none) co_return Fail(Code::kCancelled, "cancelled");
  co_return Result<>{};
}

}  // namespace sandbar
