// A result that one task produces and others wait for. Single loop.
// Shared by the producing task and its waiters, either of which may go first; hence always in a shared_ptr.
#pragma once

#include <optional>
#include <utility>

#include "async/task.h"

namespace sandbar::sandbox {

template <class T>
class SharedResult {
 public:
  explicit SharedResult(const asio::any_io_executor& ex) : event_(ex) {}

  bool ready() const { return value_.has_value(); }
  void Set(Result<T> value) {
    if (value_) return;
    value_.emplace(std::move(value));
    event_.Notify();
  }
  // For any number of waiters.
  Task<T> Wait() {
    while (!value_) {
      auto r = co_await event_.Wait();
      if (!r && !value_) co_return std::unexpected(std::move(r).error());
    }
    co_return *value_;
  }
  // For exactly one waiter.
  Task<T> Take() {
    while (!value_) {
      auto r = co_await event_.Wait();
      if (!r && !value_) co_return std::unexpected(std::move(r).error());
    }
    co_return *std::move(value_);
  }

 private:
  Event event_;
  std::optional<Result<T>> value_;
};

template <class T>
Task<> Produce(std::shared_ptr<SharedResult<T>> shared, Task<T> work) {
  // A cancelled task must still reach Set: without this, its next co_await throws past us.
  co_await asio::this_coro::throw_if_cancelled(false);
  Result<T> r = co_await std::move(work);
  shared->Set(std::move(r));
  co_return Result<>{};
}

// Runs `work` as a task of `group` and waits for it. When the caller is cancelled (its client went away), the work goes
// on to its end: half a create or half a stop must not be left behind.
template <class T>
Task<T> RunToEnd(TaskGroup* group, Task<T> work) {
  auto shared = std::make_shared<SharedResult<T>>(group->executor());
  group->Spawn(Produce(shared, std::move(work)));
  co_return co_await shared->Take();
}

}  // namespace sandbar::sandbox
