// The pause between two rounds of background work: it ends after a while, or when another task of the same loop calls
// Wake. A call of Wake while the work is under way is not forgotten.
//   while (!closing) { co_await Work(); auto again = co_await loop.Wait(1min); if (!again) break; }
#pragma once

#include <chrono>

#include "async/cancelled.h"

namespace sandbar::sandbox {

class WakeableLoop {
 public:
  explicit WakeableLoop(const asio::any_io_executor& ex) : event_(ex) {}
  void Wake() {
    asked_ = true;
    event_.Notify();
  }
  // Until the next round is due; an error when the waiting task was cancelled.
  Task<> Wait(std::chrono::milliseconds every) {
    if (!asked_) {
      auto asked = event_.Wait();
      auto waited = co_await WithTimeout(std::move(asked), every);
      if (!waited && waited.error().code == Code::kCancelled) co_return waited;
    }
    asked_ = false;
    co_return co_await CheckCancelled();
  }

 private:
  Event event_;
  bool asked_ = false;
};

}  // namespace sandbar::sandbox
