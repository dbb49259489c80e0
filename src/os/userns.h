// User namespaces of machines: ids 0…65535 inside are base…base+65535 on the host. Used by the spawner's only thread.
#pragma once

#include <cstdint>

#include "base/fd.h"
#include "base/result.h"

namespace sandbar::os {

inline constexpr uint32_t kIdsPerMachine = 65536;

// A namespace without a process in it, held by the fd (about half a millisecond: make them ahead).
Result<Fd> CreateUserNamespace(uint32_t base);

// The same ids once more, in a namespace inside of that one, whose root can make namespaces of its own: so many and no
// more, whatever ids it makes them with. The kernel counts them per user where they are made, and all together where
// their ancestor was: that is what the outer one is for. Each costs the host memory that is only partly the machine's.
Result<Fd> CreateBoundedNamespace(int outer);

}  // namespace sandbar::os
