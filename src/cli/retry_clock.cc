#include "cli/retry_clock.h"

#include <algorithm>

namespace sandbar::cli {
namespace {

constexpr std::chrono::milliseconds kFirstPause{50};
constexpr std::chrono::milliseconds kLongestPause{1000};

}  // namespace

bool RetryClock::MayPass(const Error& why) {
  switch (why.code) {
    case Code::kUnavailable:
    case Code::kTimeout:
    case Code::kTooMany:
    case Code::kIo:
      return true;
    case Code::kClosed:
      return why.cause != Cause::kOutputClosed;
    default:
      return false;
  }
}

Task<> RetryClock::Pause(Error why) {
  if (!MayPass(why)) co_return std::unexpected(std::move(why));
  const auto now = std::chrono::steady_clock::now();
  if (!since_) {
    since_ = now;
    pause_ = kFirstPause;
  }
  if (now - *since_ >= kRetryFor) co_return std::unexpected(std::move(why));
  auto slept = co_await Sleep(pause_);
  pause_ = std::min(pause_ * 2, kLongestPause);
  co_return slept;
}

}  // namespace sandbar::cli
