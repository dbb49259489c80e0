// User namespaces of machines: ids 0…65535 inside are base…base+65535 on the host. Used by the spawner's only thread.
#pragma once

#include <cstdint>

#include "base/fd.h"
#include "base/result.h"

namespace sandbar::os {

inline constexpr uint32_t kIdsPerMachine = 65536;

// A namespace without a process in it, held by the fd (about half a millisecond: make them ahead).
Result<Fd> CreateUserNamespace(uint32_t base);

}  // namespace sandbar::os
