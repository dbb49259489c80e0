#include "cli/stdin_remark.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "cli/output.h"

namespace sandbar::cli {

bool HasUnreadBytes(int fd) {
  struct stat st{};
  if (::fstat(fd, &st) != 0) return false;
  if (S_ISREG(st.st_mode)) {
    const off_t at = ::lseek(fd, 0, SEEK_CUR);
    return at >= 0 && at < st.st_size;
  }
  if (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode)) {
    int bytes = 0;
    return ::ioctl(fd, FIONREAD, &bytes) == 0 && bytes > 0;
  }
  const bool null = S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3);
  if (!S_ISCHR(st.st_mode) || null || ::isatty(fd) == 1) return false;
  pollfd p{fd, POLLIN, 0};
  return ::poll(&p, 1, 0) == 1 && (p.revents & POLLIN) != 0;
}

void StdinRemark::Look() {
  if (said_ || !HasUnreadBytes(0)) return;
  said_ = true;
  Note("standard input is not passed on: the command reads an empty one; copy a file in (sandbar cp) instead");
}

}  // namespace sandbar::cli
