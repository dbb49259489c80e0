// Capabilities of a machine's processes. Async-signal-safe; called after joining the machine's user namespace and after
// the filter is loaded (loading needs CAP_SYS_ADMIN, which is gone afterwards).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sandbar::os {

// What root in a machine may hold; bit n is capability n. Everything not listed is outside the bounding set for good.
extern const uint64_t kGuestCapabilities;
// The same in a machine that runs containers. They count in its own user namespace, and what that owns, only.
extern const uint64_t kNestingCapabilities;

// Limits the bounding, permitted and effective sets to these, and clears the inheritable and ambient ones. `reserved`
// stays permitted besides: this process can make it effective, programs that it executes never get it.
// 0, or the negative errno.
int LimitCapabilitiesRaw(uint64_t kept, uint64_t reserved = 0);
// Sets these, and clears the inheritable set. 0, or the negative errno.
int SetCapabilitiesRaw(uint64_t permitted, uint64_t effective);
// "CAP_CHOWN", … Not async-signal-safe.
std::vector<std::string> CapabilityNames(uint64_t set);

}  // namespace sandbar::os
