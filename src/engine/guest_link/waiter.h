// Inside of guest_link: coroutines that wait for a frame, with a deadline. Single loop.
#pragma once

#include <chrono>
#include <list>

#include "async/task.h"

namespace sandbar::engine {

using LinkClock = std::chrono::steady_clock;

// One coroutine waits, anybody notifies; a notification that comes first is not lost.
class Waiter {
 public:
  explicit Waiter(const asio::any_io_executor& ex) : timer_(ex) {}
  void Notify() {
    ready_ = true;
    timer_.cancel();
  }
  // kTimeout at the deadline, kCancelled when the waiting task was cancelled.
  Task<> Wait(LinkClock::time_point deadline);

 private:
  asio::steady_timer timer_;
  bool ready_ = false;
};

// Several coroutines wait for the same kind of thing; all are woken and look again.
class WaitList {
 public:
  Task<> Wait(LinkClock::time_point deadline);
  void NotifyAll() {
    for (Waiter* w : waiters_) w->Notify();
  }

 private:
  std::list<Waiter*> waiters_;
};

}  // namespace sandbar::engine
