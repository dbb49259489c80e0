// Rarely used system calls are closed. The full table of numbers is checked by the unit tests of the filter;
// here the doors are tried with arguments that would work.
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/perf_event.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "attacks.h"

static int io_uring(void) {
  char params[256] = {0};
  if (syscall(425, 4, params) >= 0) return fail("io_uring_setup worked");
  if (syscall(426, 0, 0, 0, 0, 0, 0) >= 0) return fail("io_uring_enter worked");
  return must_fail(syscall(427, -1, 0, 0, 0), "io_uring_register");
}

static int userfaultfd(void) {
  if (syscall(SYS_userfaultfd, O_CLOEXEC) >= 0) return fail("userfaultfd worked");
  return must_fail(syscall(SYS_userfaultfd, O_CLOEXEC | 1 /* USER_MODE_ONLY */), "userfaultfd(USER_MODE_ONLY)");
}

static int keys(void) {
  if (syscall(SYS_keyctl, 0, -3, 1) >= 0) return fail("keyctl worked");
  if (syscall(SYS_keyctl, 1, "x") >= 0) return fail("joined a session keyring");
  if (syscall(SYS_add_key, "user", "a", "b", 1, -3) >= 0) return fail("add_key worked");
  return must_fail(syscall(SYS_request_key, "user", "a", NULL, -3), "request_key");
}

static int bpf(void) {
  // return 0; as a socket filter
  unsigned long long insns[2] = {0x00000000000000b7ULL, 0x0000000000000095ULL};
  struct {
    unsigned type, count;
    unsigned long long insns, license;
    char rest[112];
  } attr = {1, 2, (unsigned long long)(size_t)insns, (unsigned long long)(size_t)"GPL", {0}};
  if (syscall(SYS_bpf, 5, &attr, sizeof attr) >= 0) return fail("loaded a BPF program");
  unsigned map[32] = {2, 4, 4, 1};
  return must_fail(syscall(SYS_bpf, 0, map, sizeof map), "BPF map");
}

static int perf(void) {
  struct perf_event_attr attr = {.type = PERF_TYPE_SOFTWARE, .size = sizeof attr, .exclude_kernel = 1};
  return must_fail(syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0), "perf_event_open");
}

static int handles(void) {
  struct {
    unsigned bytes;
    int type;
    char data[128];
  } handle = {128, 0, {0}};
  int mount_id;
  long named = syscall(SYS_name_to_handle_at, AT_FDCWD, "/", &handle, &mount_id, 0);
  if (named != 0) handle.bytes = 8, handle.type = 1;
  int root = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  return must_fail(syscall(SYS_open_by_handle_at, root, &handle, O_RDONLY), "open_by_handle_at");
}

static int modules(void) {
  if (syscall(SYS_init_module, "", 0, "") >= 0) return fail("init_module worked");
  if (syscall(SYS_finit_module, 0, "", 0) >= 0) return fail("finit_module worked");
  if (syscall(SYS_delete_module, "x", 0) >= 0) return fail("delete_module worked");
  if (syscall(SYS_kexec_load, 0, 0, 0, 0) >= 0) return fail("kexec_load worked");
  return must_fail(syscall(SYS_kexec_file_load, -1, -1, 0, "", 0), "kexec_file_load");
}

static int administration(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  struct timeval tv = {now.tv_sec, 0};
  if (settimeofday(&tv, NULL) == 0) return fail("settimeofday worked");
  if (clock_settime(CLOCK_REALTIME, &now) == 0) return fail("clock_settime worked");
  char zero[256] = {0};
  zero[0] = 1;  // modes: set the offset
  if (syscall(SYS_adjtimex, zero) >= 0) return fail("adjtimex worked");
  // CAD_OFF: harmless should it work.
  if (syscall(SYS_reboot, 0xfee1dead, 672274793, 0, 0) >= 0) return fail("reboot worked");
  if (syscall(SYS_swapon, "/tmp/x", 0) >= 0) return fail("swapon worked");
  if (syscall(SYS_acct, NULL) >= 0) return fail("acct worked");
  if (syscall(SYS_syslog, 3, zero, 10) >= 0) return fail("the kernel's log can be read");
  if (syscall(SYS_iopl, 3) >= 0) return fail("iopl worked");
  if (syscall(SYS_ioperm, 0x80, 1, 1) >= 0) return fail("ioperm worked");
  if (syscall(SYS_vhangup) >= 0) return fail("vhangup worked");
  return must_fail(syscall(SYS_quotactl, 0x800001, "/dev/root", 0, zero), "quotactl");
}

static int exotic(void) {
  if (syscall(SYS_memfd_secret, 0) >= 0) return fail("memfd_secret worked");
  if (syscall(SYS_fanotify_init, 0, 0) >= 0) return fail("fanotify_init worked");
  if (syscall(SYS_kcmp, getpid(), getppid(), 0, 0, 0) >= 0) return fail("kcmp worked");
  if (syscall(SYS_modify_ldt, 0, (char[16]){0}, 16) >= 0) return fail("modify_ldt worked");
  if (syscall(SYS_move_pages, 0, 0, 0, 0, 0, 0) >= 0) return fail("move_pages worked");
  if (syscall(457, (char[64]){0}, (char[512]){0}, 512, 0) >= 0) return fail("statmount worked");
  if (syscall(SYS_vmsplice, 1, 0, 0, 0) >= 0) return fail("vmsplice worked");
  return must_fail(syscall(SYS_lookup_dcookie, 0, 0, 0), "lookup_dcookie");
}

static int personality(void) {
  static const unsigned long bad[] = {0x0040000 /* no randomisation */, 0x0100000 /* mmap page zero */, 0x0400000,
                                      0x0000008};
  for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); ++i) {
    if (syscall(SYS_personality, bad[i]) >= 0) return fail("personality(%#lx) worked", bad[i]);
  }
  return PASS;
}

static int dies(void (*f)(void)) {
  pid_t pid = fork();
  if (pid == 0) {
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    f();
    _exit(0);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void x32_getpid(void) {
  syscall(SYS_getpid | 0x40000000);
}
static void x32_ioctl(void) {
  syscall(514 | 0x40000000, -1, 0, 0);
}
static void i386_getpid(void) {
  long out;
  __asm__ volatile("int $0x80" : "=a"(out) : "a"(20L) : "memory", "r8", "r9", "r10", "r11");
}
static void i386_mount(void) {
  long out;
  __asm__ volatile("int $0x80" : "=a"(out) : "a"(21L), "b"(0L), "c"(0L), "d"(0L) : "memory", "r8", "r9", "r10", "r11");
}

static int other_abis(void) {
  if (dies(x32_getpid) != SIGSYS) return fail("an x32 call was answered");
  if (dies(x32_ioctl) != SIGSYS) return fail("an x32-only call was answered");
  int sig = dies(i386_getpid);
  if (sig != SIGSYS && sig != SIGSEGV) return fail("an i386 call was answered");
  sig = dies(i386_mount);
  return sig == SIGSYS || sig == SIGSEGV ? PASS : fail("an i386 mount was answered");
}

static int terminal(void) {
  int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (master < 0) return fail("no pty: %s", strerror(errno));
  if (grantpt(master) != 0 || unlockpt(master) != 0) return fail("no pty: %s", strerror(errno));
  int slave = open(ptsname(master), O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (slave < 0) return fail("no pty: %s", strerror(errno));
  setsid();
  ioctl(slave, TIOCSCTTY, 0);
  if (ioctl(slave, TIOCSTI, "x") == 0) return fail("TIOCSTI worked");
  // The kernel reads the request as 32 bits; a filter must, too.
  if (syscall(SYS_ioctl, slave, TIOCSTI | (1UL << 32), "x") == 0) return fail("TIOCSTI with high bits worked");
  char sub = 2;
  if (ioctl(slave, TIOCLINUX, &sub) == 0) return fail("TIOCLINUX worked");
  int discipline = 0;
  return must_fail(ioctl(slave, TIOCSETD, &discipline), "TIOCSETD");
}

// Files that share their blocks show more than the disk holds to whoever has to read them.
static int shared_blocks(void) {
  char from[64], to[64];
  snprintf(from, sizeof from, "/tmp/attack-from-%d", (int)getpid());
  snprintf(to, sizeof to, "/tmp/attack-to-%d", (int)getpid());
  int source = open(from, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  int target = open(to, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  unlink(from);
  unlink(to);
  if (source < 0 || target < 0) return fail("no /tmp");
  static char block[65536];
  memset(block, 'x', sizeof block);
  if (write(source, block, sizeof block) != sizeof block) return fail("no room");
  int result = PASS;
  struct file_clone_range range = {.src_fd = source, .src_length = sizeof block};
  if (ioctl(target, FICLONE, source) == 0) result = fail("FICLONE worked");
  if (ioctl(target, FICLONERANGE, &range) == 0) result = fail("FICLONERANGE worked");
  if (syscall(SYS_ioctl, target, FICLONE | (1UL << 32), source) == 0) result = fail("FICLONE with high bits worked");
  loff_t at = 0, there = 0;
  if (syscall(SYS_copy_file_range, source, &at, target, &there, sizeof block, 0) >= 0)
    result = fail("copy_file_range worked");
  close(source);
  close(target);
  return result;
}

// Any change of an empty file's flags gives it checksums, and with them it could be compressed.
static int file_flags(void) {
  int fd = open("/tmp", O_RDWR | O_TMPFILE | O_CLOEXEC, 0644);
  if (fd < 0) return fail("no /tmp");
  int none = 0;
  struct fsxattr attributes = {0};
  int result = PASS;
  if (ioctl(fd, FS_IOC_SETFLAGS, &none) == 0) result = fail("FS_IOC_SETFLAGS worked");
  if (ioctl(fd, FS_IOC_FSSETXATTR, &attributes) == 0) result = fail("FS_IOC_FSSETXATTR worked");
  close(fd);
  return result;
}

// All machines' files are on one filesystem.
static int flush_everything(void) {
  int fd = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return fail("no /tmp");
  int result = must_fail(syncfs(fd), "syncfs");
  close(fd);
  return result;
}

// A piped core pattern starts a program of the host; with the limit at 1 byte the kernel does not.
static int core_limit(void) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_CORE, &limit) != 0) return fail("getrlimit");
  if (limit.rlim_cur != 1 || limit.rlim_max != 1) {
    return fail("core limit is %lu:%lu", (unsigned long)limit.rlim_cur, (unsigned long)limit.rlim_max);
  }
  struct rlimit more = {RLIM_INFINITY, RLIM_INFINITY};
  return must_fail(setrlimit(RLIMIT_CORE, &more), "raising the core limit");
}

static int realtime(void) {
  struct {
    int priority;
  } param = {50};
  return must_fail(syscall(SYS_sched_setscheduler, 0, 1 /* FIFO */, &param), "real-time scheduling");
}

// Guards: sudo must keep working, so no_new_privs is off, and a filter is there.
static int filter_is_on(void) {
  char text[4096];
  if (slurp("/proc/self/status", text, sizeof text) < 0) return fail("no status");
  if (strstr(text, "\nSeccomp:\t2\n") == NULL) return fail("no filter is loaded");
  return PASS;
}

static int capabilities(void) {
  char text[4096];
  if (slurp("/proc/self/status", text, sizeof text) < 0) return fail("no status");
  const char* at = strstr(text, "\nCapBnd:\t");
  if (at == NULL) return fail("no CapBnd");
  unsigned long long bounding = strtoull(at + 9, NULL, 16);
  // SYS_MODULE SYS_RAWIO SYS_PTRACE SYS_ADMIN SYS_BOOT SYS_TIME MKNOD NET_ADMIN SYSLOG BPF PERFMON DAC_READ_SEARCH
  static const int bad[] = {16, 17, 19, 21, 22, 25, 27, 12, 34, 39, 38, 2};
  for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); ++i) {
    if ((bounding >> bad[i] & 1) != 0) return fail("capability %d is in the bounding set", bad[i]);
  }
  return PASS;
}

static const struct attack list[] = {
    {"filter", filter_is_on},
    {"capabilities", capabilities},
    {"io-uring", io_uring},
    {"userfaultfd", userfaultfd},
    {"keys", keys},
    {"bpf", bpf},
    {"perf", perf},
    {"handles", handles},
    {"modules", modules},
    {"administration", administration},
    {"exotic", exotic},
    {"personality", personality},
    {"other-abis", other_abis},
    {"terminal", terminal},
    {"shared-blocks", shared_blocks},
    {"file-flags", file_flags},
    {"flush-everything", flush_everything},
    {"core-limit", core_limit},
    {"realtime", realtime},
};
GROUP(syscalls, list);
