#include "cli/signals.h"

namespace sandbar::cli {

Signals::Signals(const asio::any_io_executor& ex, std::initializer_list<int> numbers)
    : state_(std::make_shared<State>(ex)), set_(ex) {
  for (int n : numbers) {
    boost::system::error_code ec;
    set_.add(n, ec);
    SB_CHECK(!ec);
  }
  set_.async_wait([state = state_](const boost::system::error_code& ec, int number) {
    if (ec) return;
    state->number = number;
    state->event.Notify();
  });
}

Task<int> Signals::Wait() {
  while (state_->number == 0) SB_CO_TRYV(co_await state_->event.Wait());
  co_return state_->number;
}

}  // namespace sandbar::cli
