#include "http/connection_table.h"

#include <algorithm>
#include <array>
#include <vector>

namespace sandbar::http {

namespace {

constexpr size_t kKinds = static_cast<size_t>(Standing::kKnown) + 1;

struct Candidate {
  uint64_t origin = 0;
  HttpConnection* connection = nullptr;
};

bool Older(const Candidate& a, const Candidate& b) {
  return a.connection->waiting_since() < b.connection->waiting_since();
}

// Those of one address, the one that waited longest at its end.
using Origin = std::vector<Candidate>;

std::vector<Origin> ByOrigin(const std::vector<Candidate>& candidates) {
  std::unordered_map<uint64_t, Origin> found;
  for (const Candidate& c : candidates) found[c.origin].push_back(c);
  std::vector<Origin> out;
  for (auto& [id, origin] : found) {
    std::ranges::sort(origin, [](const auto& a, const auto& b) { return Older(b, a); });
    out.push_back(std::move(origin));
  }
  return out;
}

void CutSome(const std::vector<Candidate>& candidates, size_t count) {
  std::vector<Origin> origins = ByOrigin(candidates);
  for (size_t i = 0; i < std::min(count, candidates.size()); ++i) {
    auto largest = std::ranges::max_element(origins, [](const Origin& a, const Origin& b) {
      if (a.size() != b.size() || a.empty()) return a.size() < b.size();
      return Older(b.back(), a.back());
    });
    largest->back().connection->Cut(Code::kTooMany);
    largest->pop_back();
  }
}

}  // namespace

void ConnectionTable::MakeRoom() {
  std::array<std::vector<Candidate>, kKinds> kinds;
  for (const auto& [c, origin] : live_) {
    if (!c->waiting()) continue;
    if (c->cut()) return;
    kinds.at(static_cast<size_t>(c->standing())).push_back({origin, c});
  }
  const size_t share = max_ / 8;
  auto chosen = std::ranges::find_if(kinds, [&](const auto& kind) { return kind.size() > share; });
  if (chosen == kinds.end()) chosen = std::ranges::find_if(kinds, [](const auto& kind) { return !kind.empty(); });
  if (chosen == kinds.end()) return;
  // Many at a time: a look at all of them is worth more than one place.
  CutSome(*chosen, std::max<size_t>(max_ / 64, 1));
}

void ConnectionTable::CutExpired(HttpConnection::Clock::time_point now, std::chrono::seconds crowded) {
  const bool scarce = live_.size() >= max_ - max_ / 4;
  for (const auto& [c, origin] : live_) {
    const bool slow =
        scarce && c->waiting() && c->standing() == Standing::kStranger && c->waiting_since() + crowded <= now;
    if (slow || c->Expired(now)) c->Cut(Code::kTimeout);
  }
}

void ConnectionTable::CutAll(Code why) {
  for (const auto& [c, origin] : live_) c->Cut(why);
}

}  // namespace sandbar::http
