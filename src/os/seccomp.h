// The system-call filter of guests: an allow-list, ENOSYS for the rest, x32 and i386 killed. Built once in the parent
// (it allocates), loaded in each machine's first process. Needs no no_new_privs (sudo must work inside), so the loader
// must hold CAP_SYS_ADMIN in its user namespace. tests/security/syscalls.txt is the committed table of every number.
//
//   SB_TRY(auto filter, BuildGuestFilter());            // parent, at start
//   sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
//   if (LoadFilterRaw(&program) != 0) _exit(1);         // child
#pragma once

#include <linux/filter.h>

#include <vector>

#include "base/result.h"

namespace sandbar::os {

Result<std::vector<sock_filter>> BuildGuestFilter();
// For a machine that runs containers: namespaces, mounts and its own firewall rules besides. What stays closed is what
// no container runtime needs, and whatever is not namespaced.
Result<std::vector<sock_filter>> BuildNestingFilter();

// Async-signal-safe. 0, or the negative errno.
int LoadFilterRaw(const sock_fprog* program);

}  // namespace sandbar::os
