// Waiting for a signal as one of two things (`work || signal`). Asio's own signal wait of this version ignores
// cancellation, so the loser of such a race would never end: this one waits on a timer that the signal ends.
// Single loop. A signal that came before Wait is not lost.
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
  // The signal's number.
  Task<int> Wait();

 private:
  // Shared with the completion handler, which runs after our destruction too.
  struct State {
    explicit State(const asio::any_io_executor& ex) : event(ex) {}
    Event event;
    int number = 0;
  };
  std::shared_ptr<State> state_;
  asio::signal_set set_;
};

}  // namespace sandbar::cli
