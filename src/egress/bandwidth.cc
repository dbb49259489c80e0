#include "egress/bandwidth.h"

#include <algorithm>

namespace sandbar::egress {

namespace {
constexpr std::chrono::milliseconds kLongestWait{100};
constexpr double kBurstSeconds = 0.1;
}  // namespace

Bandwidth::Bandwidth(uint64_t bytes_per_second) : rate_(bytes_per_second), refilled_(std::chrono::steady_clock::now()) {
  if (rate_ != 0) chunk_ = std::clamp<size_t>(rate_ / 20, 1024, chunk_);
}

void Bandwidth::Refill() {
  auto now = std::chrono::steady_clock::now();
  double rate = static_cast<double>(rate_);
  tokens_ = std::min(rate * kBurstSeconds, tokens_ + rate * std::chrono::duration<double>(now - refilled_).count());
  refilled_ = now;
}

Task<bool> Bandwidth::Ready() {
  if (rate_ == 0) co_return true;
  Refill();
  if (tokens_ > 0) co_return true;
  std::chrono::nanoseconds wait(static_cast<int64_t>((1 - tokens_) / static_cast<double>(rate_) * 1e9) + 1);
  auto slept = co_await Sleep(std::min<std::chrono::nanoseconds>(wait, kLongestWait));
  if (!slept) co_return std::unexpected(std::move(slept).error());
  Refill();
  co_return tokens_ > 0;
}

void Bandwidth::Spend(size_t bytes) {
  if (rate_ != 0) tokens_ -= static_cast<double>(bytes);
}

}  // namespace sandbar::egress
