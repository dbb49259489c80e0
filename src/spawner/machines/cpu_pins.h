// The processors that one machine is pinned to. The quota limits how much a machine computes; pinning makes nproc and
// thread pools agree with it. HostResources counts the machines of each processor; this object takes its machine out of
// the count when it goes. Part of a Machine, which outlives no HostResources. Single thread; no call waits.
//
//   CpuPins pins(host);
//   pins.Pick(2);
//   if (auto cpus = pins.set()) … sched_setaffinity(…, &*cpus) …
#pragma once

#include <sched.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "spawner/host_resources.h"

namespace sandbar::spawner {

class CpuPins {
 public:
  explicit CpuPins(HostResources* host) : host_(host) {}
  ~CpuPins();
  CpuPins(const CpuPins&) = delete;
  CpuPins& operator=(const CpuPins&) = delete;

  // Takes the least used processors. Does nothing when the host has no more than that, or at the second call.
  void Pick(uint32_t vcpus);
  // Nothing: all processors.
  std::optional<cpu_set_t> set() const;

 private:
  HostResources* host_;
  std::vector<size_t> pinned_;  // indexes into host_->cpus
};

}  // namespace sandbar::spawner
