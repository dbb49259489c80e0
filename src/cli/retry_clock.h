// How long a broken connection to the server is tried again: 30 s since it last worked, with pauses that grow. Single
// loop.
//
//   for (RetryClock retry;;) {
//     auto answer = co_await api->Call(…);
//     if (answer) break;
//     SB_CO_TRYV(co_await retry.Pause(answer.error()));     // the error itself when trying again is no use
//   }
#pragma once

#include <chrono>
#include <optional>

#include "async/task.h"

namespace sandbar::cli {

inline constexpr std::chrono::seconds kRetryFor{30};

class RetryClock {
 public:
  // Whether another attempt may succeed: the server restarts, or the network broke.
  static bool MayPass(const Error& why);
  Task<> Pause(Error why);
  void Worked() { since_.reset(); }
  bool trying() const { return since_.has_value(); }

 private:
  std::optional<std::chrono::steady_clock::time_point> since_;
  std::chrono::milliseconds pause_{0};
};

}  // namespace sandbar::cli
