#include "spawner/machines/cpu_pins.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace sandbar::spawner {

CpuPins::~CpuPins() {
  for (size_t i : pinned_) --host_->cpu_use[i];
}

void CpuPins::Pick(uint32_t vcpus) {
  size_t want = std::max(vcpus, 1U);
  if (want >= host_->cpus.size() || !pinned_.empty()) return;
  std::vector<size_t> order(host_->cpus.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, {}, [this](size_t i) { return std::pair(host_->cpu_use[i], i); });
  pinned_.assign(order.begin(), order.begin() + static_cast<ptrdiff_t>(want));
  for (size_t i : pinned_) ++host_->cpu_use[i];
}

std::optional<cpu_set_t> CpuPins::set() const {
  if (pinned_.empty()) return std::nullopt;
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  for (size_t i : pinned_) CPU_SET(host_->cpus[i], &cpus);
  return cpus;
}

}  // namespace sandbar::spawner
