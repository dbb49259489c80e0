// Runs a task until another task completes: WithTimeout with a task in place of the time.
//
//   auto done = co_await Unless(std::move(work), std::move(end));   // kTimeout: `end` completed first
#pragma once

#include <optional>
#include <utility>

#include "async/task.h"

namespace sandbar {

namespace detail {
// kTimeout when `end` completed before `work`, whatever its result. The race is compiled once, in unless.cc.
Task<> RunUnless(asio::awaitable<void> work, Task<> end);
}  // namespace detail

// Runs `task` to its end. kTimeout when `end` completes first. The task that is not done is cancelled.
template <class T>
Task<T> Unless(Task<T> task, Task<> end) {
  std::optional<Result<T>> out;
  asio::awaitable<void> work = detail::Keep(std::move(task), &out);
  auto in_time = co_await detail::RunUnless(std::move(work), std::move(end));
  if (!in_time) co_return std::unexpected(std::move(in_time).error());
  co_return *std::move(out);
}

}  // namespace sandbar
