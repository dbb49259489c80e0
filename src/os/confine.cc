#include "os/confine.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <seccomp.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <span>

#include "os/caps.h"

namespace sandbar::os {
namespace {

// Everything else fails with EPERM: a library that tries more (a sanitizer does) goes on without it.
constexpr int kAlways[] = {
    SCMP_SYS(read),         SCMP_SYS(pread64),        SCMP_SYS(write),         SCMP_SYS(writev),      SCMP_SYS(close),
    SCMP_SYS(fstat),        SCMP_SYS(lseek),          SCMP_SYS(syncfs),        SCMP_SYS(mmap),        SCMP_SYS(munmap),
    SCMP_SYS(mremap),       SCMP_SYS(mprotect),       SCMP_SYS(madvise),       SCMP_SYS(brk),         SCMP_SYS(futex),
    SCMP_SYS(rt_sigaction), SCMP_SYS(rt_sigprocmask), SCMP_SYS(rt_sigreturn),  SCMP_SYS(sigaltstack), SCMP_SYS(getpid),
    SCMP_SYS(gettid),       SCMP_SYS(getrandom),      SCMP_SYS(clock_gettime), SCMP_SYS(sched_yield), SCMP_SYS(exit),
    SCMP_SYS(exit_group),
};
constexpr int kReading[] = {
    SCMP_SYS(newfstatat), SCMP_SYS(getdents64), SCMP_SYS(readlinkat), SCMP_SYS(fgetxattr),
    SCMP_SYS(flistxattr), SCMP_SYS(fcntl),      SCMP_SYS(fsync),
};
// Of processes only those whose descriptors it has.
constexpr int kTalking[] = {
    SCMP_SYS(poll), SCMP_SYS(sendmsg), SCMP_SYS(recvfrom), SCMP_SYS(clock_nanosleep), SCMP_SYS(pidfd_send_signal),
};

class Filter {
 public:
  Filter() : context_(::seccomp_init(SCMP_ACT_ERRNO(EPERM))) { Allow(kAlways); }
  void Allow(std::span<const int> calls) {
    for (int call : calls) Add(::seccomp_rule_add_array(context_.get(), SCMP_ACT_ALLOW, call, 0, nullptr));
  }
  // Where the argument of that number has this value, as far as the mask goes.
  void AllowIf(int call, unsigned arg, uint64_t mask, uint64_t value) {
    const scmp_arg_cmp only{arg, SCMP_CMP_MASKED_EQ, mask, value};
    Add(::seccomp_rule_add_array(context_.get(), SCMP_ACT_ALLOW, call, 1, &only));
  }
  Result<> Load() {
    if (error_ == 0) error_ = ::seccomp_load(context_.get());
    if (error_ != 0) return FailErrno("seccomp", -error_);
    return {};
  }

 private:
  void Add(int error) {
    if (error_ == 0) error_ = error;
  }
  struct Release {
    void operator()(void* context) const { ::seccomp_release(context); }
  };
  std::unique_ptr<void, Release> context_;
  int error_ = 0;
};

Result<> KeepCapabilities(uint64_t kept) {
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return FailErrno("no_new_privs");
  if (int error = LimitCapabilitiesRaw(kept); error != 0) return FailErrno("capabilities", -error);
  return {};
}

}  // namespace

Result<> ConfineToReading(int root) {
  if (::fchdir(root) != 0 || ::chroot(".") != 0) return FailErrno("chroot");
  constexpr uint64_t kKept = uint64_t{1} << CAP_DAC_READ_SEARCH | uint64_t{1} << CAP_SYS_ADMIN;
  SB_TRYV(KeepCapabilities(kKept));
  Filter filter;
  filter.Allow(kReading);
  // Opening, but not for writing.
  filter.AllowIf(SCMP_SYS(openat), 2, O_ACCMODE | O_CREAT | O_TRUNC, O_RDONLY);
  return filter.Load();
}

Result<> ConfineToDescriptors(uint64_t capabilities, const std::vector<uint32_t>& requests) {
  SB_TRYV(KeepCapabilities(capabilities));
  Filter filter;
  filter.Allow(kTalking);
  filter.AllowIf(SCMP_SYS(waitid), 0, 0xffffffff, P_PIDFD);
  for (uint32_t request : requests) filter.AllowIf(SCMP_SYS(ioctl), 1, 0xffffffff, request);
  return filter.Load();
}

}  // namespace sandbar::os
