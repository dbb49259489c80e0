// The one deadline of an intercepted connection. Private to egress/. Single loop; owned by the connection, whose two
// message readers (the guest's and the upstream's) report their progress to it.
//
//   Deadline deadline(ex, config->head_timeout, config->idle_timeout);
//   co_await (Serve() || deadline.Passed());
#pragma once

#include <chrono>

#include "async/task.h"
#include "http/message_reader.h"

namespace sandbar::egress {

// When the connection gives up. The time is fixed while a head or a handshake comes in, so that a client which sends
// single bytes gains nothing; otherwise every byte that moves puts it off.
class Deadline final : public http::ReadProgress {
 public:
  using Clock = std::chrono::steady_clock;
  Deadline(const asio::any_io_executor& ex, std::chrono::milliseconds head, std::chrono::milliseconds idle)
      : head_(head), idle_(idle), at_(Clock::now() + head), timer_(ex) {}

  void StartHead() {
    fixed_ = true;
    Set(Clock::now() + head_);
  }
  void StartIdle() {
    fixed_ = false;
    Touch();
  }
  void Touch() {
    if (!fixed_) Set(Clock::now() + idle_);
  }
  void OnHeadBegin() override { StartHead(); }
  void OnHeadEnd() override { StartIdle(); }
  void OnRead() override { Touch(); }
  // Ends when it has passed. At most one task waits.
  Task<> Passed();

 private:
  void Set(Clock::time_point at) {
    // A later one is noticed when the timer fires; an earlier one must be told.
    if (at < timer_.expiry()) timer_.cancel();
    at_ = at;
  }

  std::chrono::milliseconds head_, idle_;
  bool fixed_ = true;
  Clock::time_point at_;
  asio::steady_timer timer_;
};

}  // namespace sandbar::egress
