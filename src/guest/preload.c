// For guests on versions of gVisor that do not know AT_NO_AUTOMOUNT and answer EINVAL, which ends `ls` and `stat` of
// current distributions. Preloaded by the agent where the probe found that; makes the same calls without that flag,
// which means nothing in a machine without automounts. No library is linked: it must load beside any libc.
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

extern int *__errno_location(void);

static long Call(long number, long a, long b, long c, long d, long e) {
  register long r10 __asm__("r10") = d;
  register long r8 __asm__("r8") = e;
  long result;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8)
                   : "rcx", "r11", "memory");
  if (result >= 0) return result;
  *__errno_location() = (int)-result;
  return -1;
}

int statx(int dir, const char *restrict path, int flags, unsigned mask, struct statx *restrict out) {
  return (int)Call(SYS_statx, dir, (long)path, flags & ~AT_NO_AUTOMOUNT, mask, (long)out);
}

int fstatat(int dir, const char *restrict path, struct stat *restrict out, int flags) {
  return (int)Call(SYS_newfstatat, dir, (long)path, (long)out, flags & ~AT_NO_AUTOMOUNT, 0);
}

int fstatat64(int dir, const char *restrict path, struct stat64 *restrict out, int flags) {
  return (int)Call(SYS_newfstatat, dir, (long)path, (long)out, flags & ~AT_NO_AUTOMOUNT, 0);
}
