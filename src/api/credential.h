// The credential of a call ends when it expires or when its key is revoked. Streams that it opened end with it. Lives
// in the call; single loop.
//
//   // kUnauthenticated when the credential ended first:
//   auto done = co_await call->credential->Until(std::move(pipe));
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "async/task.h"
#include "async/unless.h"
#include "sandbox/keys/keys.h"

namespace sandbar::api {

// How long a stream whose credential has ended may take to tell its client so.
inline constexpr std::chrono::seconds kLastWordsTime{3};

class Credential {
 public:
  explicit Credential(const sandbox::Identity& who) : ends_at_ms_(who.ends_at_ms), life_(who.life) {}

  bool ended() const;
  // For the caller, once ended() is true.
  std::string_view Why() const;
  Error Refusal() const { return Error{Code::kUnauthenticated, std::string(Why())}; }
  // Runs the task to its end, or to that of the credential.
  template <class T>
  Task<T> Until(Task<T> task) {
    auto end = Wait();
    auto done = co_await Unless(std::move(task), std::move(end));
    if (!done && done.error().code == Code::kTimeout && ended()) co_return std::unexpected(Refusal());
    co_return done;
  }

 private:
  Task<> Wait();

  std::optional<int64_t> ends_at_ms_;
  std::shared_ptr<sandbox::KeyLife> life_;
};

}  // namespace sandbar::api
