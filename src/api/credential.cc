#include "api/credential.h"

#include <algorithm>

#include "base/ids.h"

namespace sandbar::api {
namespace {

constexpr int64_t kLongestMs = 24LL * 3600 * 1000;  // of one wait

}  // namespace

bool Credential::ended() const {
  return life_->revoked() || (ends_at_ms_ && NowMs() >= *ends_at_ms_);
}

std::string_view Credential::Why() const {
  if (life_->revoked()) return "the key that opened this was revoked; ask an admin of the server for another one";
  return "the token that opened this has expired; get another one and ask again";
}

Task<> Credential::Wait() {
  while (!ended()) {
    // The timer's clock and the time of day may differ. The time of day decides.
    std::optional<std::chrono::nanoseconds> longest;
    if (ends_at_ms_) longest = std::chrono::milliseconds(std::clamp<int64_t>(*ends_at_ms_ - NowMs(), 1, kLongestMs));
    SB_CO_TRYV(co_await life_->Wait(longest));
  }
  co_return Result<>{};
}

}  // namespace sandbar::api
