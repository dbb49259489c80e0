#include "cli/signals.h"

#include <signal.h>

namespace sandbar::cli {
namespace {

bool Ignored(int number) {
  struct sigaction now{};
  return ::sigaction(number, nullptr, &now) == 0 && (now.sa_flags & SA_SIGINFO) == 0 && now.sa_handler == SIG_IGN;
}

}  // namespace

Signals::Signals(const asio::any_io_executor& ex, std::initializer_list<int> numbers)
    : state_(std::make_shared<State>(ex)) {
  for (int n : numbers) {
    if (Ignored(n)) continue;
    boost::system::error_code ec;
    state_->set.add(n, ec);
    SB_CHECK(!ec);
  }
  Arm(state_);
}

Signals::~Signals() {
  boost::system::error_code ec;
  state_->set.cancel(ec);
}

void Signals::Arm(const std::shared_ptr<State>& state) {
  state->set.async_wait([state](const boost::system::error_code& ec, int number) {
    if (ec) return;
    if (state->count++ == 0) state->number = number;
    state->event.Notify();
    Arm(state);
  });
}

Task<int> Signals::Wait(int nth) {
  while (state_->count < nth) SB_CO_TRYV(co_await state_->event.Wait());
  co_return state_->number;
}

}  // namespace sandbar::cli
