// A machine's share of the network: a token bucket that is paid afterwards, so the overdraft is at most one chunk.
// Single loop.
//
//   auto ready = co_await bandwidth.Ready();
//   … move at most bandwidth.Chunk() bytes …
//   bandwidth.Spend(n);
#pragma once

#include <chrono>
#include <cstdint>

#include "async/task.h"

namespace sandbar::egress {

class Bandwidth {
 public:
  Bandwidth() = default;
  // 0: no limit.
  explicit Bandwidth(uint64_t bytes_per_second);

  bool limited() const { return rate_ != 0; }
  // Waits until there is something to spend, a tenth of a second at most: false then, and the caller asks again after
  // looking whether it still wants to.
  Task<bool> Ready();
  void Spend(size_t bytes);
  size_t Chunk() const { return chunk_; }

 private:
  void Refill();

  uint64_t rate_ = 0;
  size_t chunk_ = size_t{1} << 20;
  double tokens_ = 0;
  std::chrono::steady_clock::time_point refilled_;
};

}  // namespace sandbar::egress
