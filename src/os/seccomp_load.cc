#include <linux/seccomp.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "os/seccomp.h"

namespace sandbar::os {

int LoadFilterRaw(const sock_fprog* program) {
  if (::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, program) != 0) return -errno;
  return 0;
}

}  // namespace sandbar::os
