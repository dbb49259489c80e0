// User namespaces of machines: ids 0…65535 inside are base…base+65535 on the host. Used by the spawner's only thread.
#pragma once

#include <cstdint>

#include "base/fd.h"
#include "base/result.h"

namespace sandbar::os {

inline constexpr uint32_t kIdsPerMachine = 65536;

// A namespace without a process in it, held by the fd (about half a millisecond: make them ahead).
Result<Fd> CreateUserNamespace(uint32_t base);

// A user namespace inside `outer`, with the same ids, whose root may make namespaces of its own, up to a fixed number.
// The kernel counts namespaces per user where they are made, and their total in the ancestor: the outer namespace
// exists for that total. The bound is needed because each namespace costs host memory that is only partly charged to
// the machine.
Result<Fd> CreateBoundedNamespace(int outer);

}  // namespace sandbar::os
