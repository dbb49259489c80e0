// Takes the system calls statfs and fstatfs of a machine away from the kernel: a small filter beside the one of
// os/seccomp.h hands each of them to the holder of a descriptor, which answers it (seccomp_unotify(2)). The filter
// cannot be removed, and the holder and its children are under it too. So one call stays open: fstatfs with a key in
// two registers that the kernel ignores. Only the holder knows the key; the kernel shows filters to nobody in a
// machine. Single thread.
//
//   SB_TRY(StatfsCalls calls, TakeStatfsCalls());           // needs CAP_SYS_ADMIN in the user namespace
//   … poll calls.listener …
//   if (ReceiveCall(calls.listener.get(), &call)) AnswerCall(calls.listener.get(), call.id, -ENOENT);
#pragma once

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/statfs.h>

#include <array>
#include <cstdint>
#include <vector>

#include "base/fd.h"
#include "base/result.h"

namespace sandbar::os {

using StatfsKey = std::array<uint64_t, 2>;

struct StatfsCalls {
  Fd listener;
  StatfsKey key{};
};

std::vector<sock_filter> StatfsFilter(const StatfsKey& key);
Result<StatfsCalls> TakeStatfsCalls();
// Whether a process here can. It cannot below another such filter: some container managers have one.
bool CanTakeStatfsCalls();

// The next call that waits. False: it is gone, or a signal came. `call` must be zero.
bool ReceiveCall(int listener, seccomp_notif* call);
// Whether the process still waits in this call: then what was opened by its process id is its own.
bool CallWaits(int listener, uint64_t call);
// 0, or the negative errno that the caller gets. The caller may be gone.
void AnswerCall(int listener, uint64_t call, int error);
// Hands the processor over to the process that waits for the answer, and back. Does nothing before kernel 6.6.
void WakeInTurns(int listener);
// The kernel's own answer. 0 or -1, with errno.
int RealFstatfs(int fd, struct statfs* out, const StatfsKey& key);

}  // namespace sandbar::os
