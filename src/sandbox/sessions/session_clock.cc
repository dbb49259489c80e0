#include "sandbox/sessions/session_clock.h"

#include <fmt/format.h>

#include <algorithm>

#include "async/cancelled.h"
#include "base/ids.h"

namespace sandbar::sandbox {
namespace {

using std::chrono::milliseconds;

// The spawner's deadline lies this far behind ours.
constexpr milliseconds kDeadlineSlack{2000};

}  // namespace

Task<> SessionClock::Arm() {
  const int64_t left = std::max<int64_t>(Deadline() - NowMs(), 0);
  const milliseconds deadline = milliseconds(left) + kDeadlineSlack;
  co_return co_await state_->connected->machine().SetDeadline(deadline);
}

void SessionClock::SetIdleTimeout(std::optional<int64_t> ms) {
  idle_timeout_ms_ = ms;
  last_used_ = std::chrono::steady_clock::now();
  moved_.Notify();
}

void SessionClock::EndUse() {
  --users_;
  last_used_ = std::chrono::steady_clock::now();
}

std::optional<int64_t> SessionClock::IdleLeft() const {
  if (!idle_timeout_ms_) return std::nullopt;
  if (users_ > 0 || !commands_->empty()) return idle_timeout_ms_;
  const auto since = std::chrono::steady_clock::now() - std::max(last_used_, commands_->last_ended());
  return *idle_timeout_ms_ - std::chrono::duration_cast<milliseconds>(since).count();
}

Task<> SessionClock::Run(std::function<void(std::string why)> expired, std::function<Task<>()> tick) {
  co_await asio::this_coro::throw_if_cancelled(false);
  last_used_ = std::chrono::steady_clock::now();
  while (state_->phase == SessionPhase::kRunning) {
    int64_t left = Deadline() - NowMs();
    const auto idle_left = IdleLeft();
    if (left <= 0 || (idle_left && *idle_left <= 0)) {
      expired(left <= 0 ? "timeout" : "idle timeout");
      co_return Result<>{};
    }
    left = std::min(left, idle_left.value_or(left));
    // In pieces, because the wall clock may be set.
    const milliseconds piece(std::min<int64_t>(left, 60000));
    auto moved = moved_.Wait();
    auto r = co_await WithTimeout(std::move(moved), piece);
    if (!r && r.error().code == Code::kCancelled) break;
    auto cancelled = co_await CheckCancelled();
    if (!cancelled) break;
    if (state_->phase == SessionPhase::kRunning) co_await tick();
  }
  co_return Result<>{};
}

Task<> SessionClock::Extend(int64_t duration_ms) {
  SB_CO_TRYV(state_->Usable());
  if (duration_ms < 1000) co_return Fail(Code::kBadRequest, "duration: at least 1000 ms");
  store::Session& row = state_->row;
  const int64_t limit = state_->core->config.max_timeout_ms;
  if (duration_ms > limit || row.timeout_ms > limit - duration_ms) {
    co_return Fail(Code::kTimeoutInvalid,
                   fmt::format("the timeout would be {} ms longer than {} ms; this server's limit "
                               "is {} ms in all",
                               duration_ms, row.timeout_ms, limit));
  }
  row.timeout_ms += duration_ms;
  auto r = co_await Arm();
  if (r) {
    auto saved = co_await state_->Save();
    if (!saved) r = std::unexpected(std::move(saved).error());
  }
  if (!r) row.timeout_ms -= duration_ms;
  moved_.Notify();
  co_return r;
}

}  // namespace sandbar::sandbox
