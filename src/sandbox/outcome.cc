#include "sandbox/outcome.h"

namespace sandbar::sandbox {
namespace {

constexpr std::chrono::milliseconds kAgain{20};

Task<> JoinGroup(TaskGroup* group) {
  co_await group->Join();
  co_return Result<>{};
}

}  // namespace

asio::awaitable<void> CloseGroup(TaskGroup* group) {
  while (group->size() > 0) {
    group->Cancel();
    auto join = JoinGroup(group);
    co_await WithTimeout(std::move(join), kAgain);
  }
}

}  // namespace sandbar::sandbox
