// Tells the streams that a key opened when the key is revoked. The role Keys and the calls of the key share it; it
// lives as long as one of them. Single loop.
//
//   SB_CO_TRYV(co_await life->Wait(std::chrono::minutes(5)));
//   if (life->revoked()) …
#pragma once

#include <chrono>
#include <list>
#include <optional>

#include "async/task.h"

namespace sandbar::sandbox {

class KeyLife {
 public:
  KeyLife() = default;
  KeyLife(const KeyLife&) = delete;
  KeyLife& operator=(const KeyLife&) = delete;

  bool revoked() const { return revoked_; }
  // Wakes all waiting tasks.
  void Revoke();
  // Returns when the key is revoked or `longest` has passed; without `longest`, only when it is revoked. kCancelled
  // when the waiting task was cancelled.
  Task<> Wait(std::optional<std::chrono::nanoseconds> longest);

 private:
  bool revoked_ = false;
  std::list<asio::steady_timer*> waiting_;  // each in the frame of a Wait
};

}  // namespace sandbar::sandbox
