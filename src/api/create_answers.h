// Which creates of the last minute were answered in full, by the digest of their request. An identical request for a
// name that is taken is a repetition only if the first one's answer got lost. Loop thread; owned by Api.
#pragma once

#include <chrono>
#include <deque>
#include <string>
#include <utility>

namespace sandbar::api {

class CreateAnswers {
 public:
  static constexpr std::chrono::milliseconds kKept{60'000};

  void Add(std::string digest) {
    const Clock::time_point now = Clock::now();
    while (!recent_.empty() && now - recent_.front().first > kKept) recent_.pop_front();
    recent_.emplace_back(now, std::move(digest));
  }
  bool Contains(const std::string& digest) const {
    for (const auto& [at, known] : recent_)
      if (known == digest) return true;
    return false;
  }

 private:
  using Clock = std::chrono::steady_clock;
  std::deque<std::pair<Clock::time_point, std::string>> recent_;
};

}  // namespace sandbar::api
