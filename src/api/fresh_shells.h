// Sandboxes that a client has just made for an interactive shell, as far as the server can tell: the request said
// `__interactive`, and nothing else has been asked about the sandbox since. The protocol's CLI sends the same request
// for `create` and for `sh`; only what it asks next differs. Loop thread; owned by Api.
#pragma once

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <string>
#include <utility>

namespace sandbar::api {

class FreshShells {
 public:
  static constexpr std::chrono::seconds kKept{60};
  static constexpr size_t kMax = 1024;

  void Add(std::string name, std::string session) {
    const Clock::time_point now = Clock::now();
    while (!recent_.empty() && (recent_.size() >= kMax || now - recent_.front().at > kKept)) recent_.pop_front();
    recent_.push_back({now, std::move(name), std::move(session)});
  }
  // For every request, with the parameters of its path: true for the first one since the creation.
  bool FirstUse(const std::map<std::string, std::string>& params) {
    const auto name = params.find("name"), session = params.find("session");
    const auto it = std::ranges::find_if(recent_, [&](const Made& made) {
      return (name != params.end() && name->second == made.name) ||
             (session != params.end() && session->second == made.session);
    });
    if (it == recent_.end()) return false;
    const bool in_time = Clock::now() - it->at <= kKept;
    recent_.erase(it);
    return in_time;
  }

 private:
  using Clock = std::chrono::steady_clock;
  struct Made {
    Clock::time_point at;
    std::string name, session;
  };
  std::deque<Made> recent_;
};

}  // namespace sandbar::api
