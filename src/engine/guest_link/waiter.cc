#include "engine/guest_link/waiter.h"

#include <utility>

namespace sandbar::engine {

Task<> Waiter::Wait(LinkClock::time_point deadline) {
  if (!ready_) {
    timer_.expires_at(deadline);
    co_await timer_.async_wait(kToken);
  }
  auto state = co_await asio::this_coro::cancellation_state;
  if (state.cancelled() != asio::cancellation_type::none) co_return Fail(Code::kCancelled, "cancelled");
  if (!std::exchange(ready_, false)) co_return Fail(Code::kTimeout, "the machine's agent does not answer");
  co_return Result<>{};
}

Task<> WaitList::Wait(LinkClock::time_point deadline) {
  auto ex = co_await asio::this_coro::executor;
  Waiter waiter(ex);
  struct Entry {
    std::list<Waiter*>& list;
    std::list<Waiter*>::iterator at;
    ~Entry() { list.erase(at); }
  };
  auto at = waiters_.insert(waiters_.end(), &waiter);
  Entry entry{waiters_, at};
  auto r = co_await waiter.Wait(deadline);
  co_return r;
}

}  // namespace sandbar::engine
