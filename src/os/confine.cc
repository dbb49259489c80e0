#include "os/confine.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <seccomp.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <memory>

#include "os/caps.h"

namespace sandbar::os {
namespace {

// Everything else fails with EPERM: a library that tries more (a sanitizer does) goes on without it.
constexpr int kAllowed[] = {
    SCMP_SYS(read),         SCMP_SYS(pread64),       SCMP_SYS(write),        SCMP_SYS(writev),
    SCMP_SYS(close),        SCMP_SYS(fstat),         SCMP_SYS(newfstatat),   SCMP_SYS(lseek),
    SCMP_SYS(getdents64),   SCMP_SYS(readlinkat),    SCMP_SYS(fgetxattr),    SCMP_SYS(flistxattr),
    SCMP_SYS(fcntl),        SCMP_SYS(fsync),         SCMP_SYS(syncfs),       SCMP_SYS(mmap),
    SCMP_SYS(munmap),       SCMP_SYS(mremap),        SCMP_SYS(mprotect),     SCMP_SYS(madvise),
    SCMP_SYS(brk),          SCMP_SYS(futex),         SCMP_SYS(rt_sigaction), SCMP_SYS(rt_sigprocmask),
    SCMP_SYS(rt_sigreturn), SCMP_SYS(sigaltstack),   SCMP_SYS(getpid),       SCMP_SYS(gettid),
    SCMP_SYS(getrandom),    SCMP_SYS(clock_gettime), SCMP_SYS(sched_yield),  SCMP_SYS(exit),
    SCMP_SYS(exit_group),
};

struct Release {
  void operator()(void* context) const { ::seccomp_release(context); }
};

Result<> LoadFilter() {
  std::unique_ptr<void, Release> filter(::seccomp_init(SCMP_ACT_ERRNO(EPERM)));
  if (!filter) return Fail(Code::kInternal, "seccomp_init");
  int error = 0;
  for (int call : kAllowed) {
    if (error == 0) error = ::seccomp_rule_add_array(filter.get(), SCMP_ACT_ALLOW, call, 0, nullptr);
  }
  // Opening, but not for writing.
  constexpr int kFlags = 2;  // the argument of that number
  const scmp_arg_cmp reading{kFlags, SCMP_CMP_MASKED_EQ, O_ACCMODE | O_CREAT | O_TRUNC, O_RDONLY};
  if (error == 0) error = ::seccomp_rule_add_array(filter.get(), SCMP_ACT_ALLOW, SCMP_SYS(openat), 1, &reading);
  if (error == 0) error = ::seccomp_load(filter.get());
  if (error != 0) return FailErrno("seccomp", -error);
  return {};
}

}  // namespace

Result<> ConfineToReading(int root) {
  if (::fchdir(root) != 0 || ::chroot(".") != 0) return FailErrno("chroot");
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return FailErrno("no_new_privs");
  constexpr uint64_t kKept = uint64_t{1} << CAP_DAC_READ_SEARCH | uint64_t{1} << CAP_SYS_ADMIN;
  if (int error = LimitCapabilitiesRaw(kKept); error != 0) return FailErrno("capabilities", -error);
  return LoadFilter();
}

}  // namespace sandbar::os
