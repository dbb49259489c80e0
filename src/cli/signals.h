// Waiting for a signal as one of two things (`work || signal`). Asio's own signal wait of this version ignores
// cancellation, so the loser of such a race would never end: this one waits on a timer that the signal ends.
// Single loop. A signal that came before Wait is not lost. A signal that the process was started to ignore (nohup)
// stays ignored.
//
//   Signals signals(ex, {SIGINT, SIGTERM});
//   Task<int> signal = signals.Wait();
//   auto first = co_await (std::move(work) || std::move(signal));
#pragma once

#include <boost/asio/signal_set.hpp>
#include <initializer_list>
#include <memory>

#include "async/task.h"

namespace sandbar::cli {

class Signals {
 public:
  Signals(const asio::any_io_executor& ex, std::initializer_list<int> numbers);
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;
  ~Signals();
  // Returns when `nth` signals have come since the start, at once when they have already. The first one's number.
  Task<int> Wait(int nth = 1);
  int count() const { return state_->count; }

 private:
  // Shared with the completion handler, which runs after our destruction too.
  struct State {
    explicit State(const asio::any_io_executor& ex) : event(ex), set(ex) {}
    Event event;
    asio::signal_set set;
    int number = 0;
    int count = 0;
  };
  static void Arm(const std::shared_ptr<State>& state);

  std::shared_ptr<State> state_;
};

// Does the work until it ends or the nth signal comes; the signal ends the work and gives kCancelled.
template <class T>
Task<T> UnlessSignalled(Signals* signals, int nth, Task<T> work) {
  using namespace asio::experimental::awaitable_operators;
  Task<int> signal = signals->Wait(nth);
  auto first = co_await (std::move(work) || std::move(signal));
  if (first.index() == 0) co_return std::get<0>(std::move(first));
  co_return Fail(Code::kCancelled, "interrupted by a signal");
}

}  // namespace sandbar::cli
