#include "sandbox/keys/key_life.h"

namespace sandbar::sandbox {
namespace {

// Keeps a timer in the list until the frame that has the timer is destroyed.
class Waiting {
 public:
  Waiting(std::list<asio::steady_timer*>* all, asio::steady_timer* timer)
      : all_(all), place_(all->insert(all->end(), timer)) {}
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;
  ~Waiting() { all_->erase(place_); }

 private:
  std::list<asio::steady_timer*>* all_;
  std::list<asio::steady_timer*>::iterator place_;
};

}  // namespace

void KeyLife::Revoke() {
  revoked_ = true;
  for (asio::steady_timer* timer : waiting_) timer->cancel();
}

Task<> KeyLife::Wait(std::optional<std::chrono::nanoseconds> longest) {
  if (revoked_) co_return Result<>{};
  auto ex = co_await asio::this_coro::executor;
  asio::steady_timer timer(ex, asio::steady_timer::time_point::max());
  if (longest) timer.expires_after(*longest);
  Waiting waiting(&waiting_, &timer);
  // Revoke() cancels the timer, so its error says nothing; only the task's own cancellation does.
  co_await timer.async_wait(kToken);
  auto state = co_await asio::this_coro::cancellation_state;
  if (state.cancelled() != asio::cancellation_type::none) co_return Fail(Code::kCancelled, "cancelled");
  co_return Result<>{};
}

}  // namespace sandbar::sandbox
