// A cancellation that arrives together with a success finds no operation to end, and a coroutine that asked not to be
// thrown at would start the next one and wait for ever. Whoever loops over operations asks between them.
#pragma once

#include "async/task.h"

namespace sandbar {

inline Task<> CheckCancelled() {
  auto state = co_await asio::this_coro::cancellation_state;
  if (state.cancelled() != asio::cancellation_type::none) co_return Fail(Code::kCancelled, "cancelled");
  co_return Result<>{};
}

}  // namespace sandbar
