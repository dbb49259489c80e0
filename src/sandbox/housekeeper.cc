#include "sandbox/housekeeper.h"

#include "base/log.h"

namespace sandbar::sandbox {
namespace {

constexpr std::chrono::minutes kEvery{1};

}  // namespace

Task<> Housekeeper::Run() {
  co_await asio::this_coro::throw_if_cancelled(false);
  while (!core_->closing) {
    // A chore that fails does not keep the others from running.
    for (const auto& chore : chores_) {
      auto done = co_await chore();
      if (!done && !core_->closing) log::Warn("tidying up: {}", done.error().message);
    }
    auto again = co_await loop_.Wait(kEvery);
    if (!again) break;
    auto paused = co_await Sleep(core_->config.tidy_pause);
    if (!paused) break;
  }
  co_return Result<>{};
}

}  // namespace sandbar::sandbox
