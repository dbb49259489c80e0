// Devices, and the fake /dev entries of CVE-2025-31133 and CVE-2025-52565: no device of the host is reached.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "attacks.h"

struct number {
  unsigned major, minor;
};

static bool allowed(struct stat* st) {
  static const struct number ok[] = {{1, 3}, {1, 5}, {1, 7}, {1, 8}, {1, 9}, {5, 0}, {5, 2}};
  if (S_ISBLK(st->st_mode)) return false;
  if (major(st->st_rdev) == 136) return true;
  for (size_t i = 0; i < sizeof(ok) / sizeof(ok[0]); ++i) {
    if (major(st->st_rdev) == ok[i].major && minor(st->st_rdev) == ok[i].minor) return true;
  }
  return false;
}

static int make_nodes(void) {
  // Memory, the kernel's log, disks, kvm, fuse, tun, console, vsock.
  static const struct number chars[] = {{1, 1},    {1, 4}, {1, 11},   {10, 232}, {10, 229},
                                        {10, 200}, {5, 1}, {10, 121}, {1, 3}};
  static const struct number blocks[] = {{8, 0}, {254, 0}, {253, 0}, {259, 0}, {7, 0}, {252, 0}};
  static const char* const dirs[] = {"/tmp", "/dev/shm", "/var/tmp", "/root", "/run"};
  for (size_t d = 0; d < sizeof(dirs) / sizeof(dirs[0]); ++d) {
    char path[64];
    snprintf(path, sizeof path, "%s/node", dirs[d]);
    for (size_t i = 0; i < sizeof(chars) / sizeof(chars[0]); ++i) {
      if (mknod(path, S_IFCHR | 0666, makedev(chars[i].major, chars[i].minor)) == 0) {
        unlink(path);
        return fail("made a character device in %s", dirs[d]);
      }
    }
    for (size_t i = 0; i < sizeof(blocks) / sizeof(blocks[0]); ++i) {
      if (mknod(path, S_IFBLK | 0666, makedev(blocks[i].major, blocks[i].minor)) == 0) {
        unlink(path);
        return fail("made a block device in %s", dirs[d]);
      }
    }
  }
  return PASS;
}

static int make_whiteout(void) {
  int made = mknod("/tmp/whiteout", S_IFCHR | 0666, makedev(0, 0));
  if (made == 0) unlink("/tmp/whiteout");
  return must_fail(made, "mknod of a whiteout");
}

static int scan(const char* dir, int depth) {
  DIR* d = opendir(dir);
  if (d == NULL) return PASS;
  struct dirent* e;
  int result = PASS;
  while (result == PASS && (e = readdir(d)) != NULL) {
    if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
    struct stat st;
    if (lstat(path, &st) != 0) continue;
    if ((S_ISCHR(st.st_mode) || S_ISBLK(st.st_mode)) && !allowed(&st)) {
      result = fail("%s is device %u:%u", path, major(st.st_rdev), minor(st.st_rdev));
    }
    if (S_ISDIR(st.st_mode) && depth < 4) result = scan(path, depth + 1);
  }
  closedir(d);
  return result;
}

static int only_harmless(void) {
  return scan("/dev", 0);
}

static int forbidden_paths(void) {
  static const char* const paths[] = {"/dev/mem",
                                      "/dev/kmem",
                                      "/dev/port",
                                      "/dev/kmsg",
                                      "/dev/sda",
                                      "/dev/vda",
                                      "/dev/nvme0n1",
                                      "/dev/kvm",
                                      "/dev/fuse",
                                      "/dev/net/tun",
                                      "/dev/loop0",
                                      "/dev/loop-control",
                                      "/dev/mapper/control",
                                      "/dev/vsock",
                                      "/dev/vhost-vsock",
                                      "/dev/vhost-net",
                                      "/dev/btrfs-control",
                                      "/dev/console",
                                      "/dev/tty0",
                                      "/dev/userfaultfd",
                                      "/dev/snapshot",
                                      "/dev/hwrng",
                                      "/dev/rtc0",
                                      "/dev/cpu/0/msr"};
  for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); ++i) {
    if (open(paths[i], O_RDONLY | O_NONBLOCK | O_CLOEXEC) >= 0) return fail("opened %s", paths[i]);
  }
  return PASS;
}

// A /dev that the guest can rearrange lets it redirect what a privileged process later writes to /dev/null.
static int dev_is_fixed(void) {
  static const char* const names[] = {"/dev/null", "/dev/zero", "/dev/tty", "/dev/ptmx", "/dev/pts", "/dev/fd"};
  for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); ++i) {
    if (unlink(names[i]) == 0) return fail("removed %s", names[i]);
    if (rename(names[i], "/dev/moved") == 0) return fail("renamed %s", names[i]);
  }
  if (symlink("/proc/sys/kernel/core_pattern", "/dev/console") == 0) return fail("made /dev/console");
  if (chmod("/dev/null", 0600) == 0) return fail("chmod of /dev/null worked");
  return must_fail(mkdir("/dev/new", 0755), "mkdir in /dev");
}

static int null_is_null(void) {
  struct stat st;
  if (stat("/dev/null", &st) != 0) return fail("no /dev/null");
  if (!S_ISCHR(st.st_mode) || st.st_rdev != makedev(1, 3)) return fail("/dev/null is not the null device");
  int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
  return fd >= 0 && write(fd, "x", 1) == 1 ? PASS : fail("cannot write to /dev/null");
}

// The host has one pool of terminals for everybody (kernel.pty.max, 4096 as a rule): a machine gets a few of them.
static int terminals(void) {
  struct rlimit files = {4096, 4096};
  if (setrlimit(RLIMIT_NOFILE, &files) != 0) {
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
  }
  int made = 0;
  while (open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC) >= 0) ++made;
  if (errno != ENOSPC) return fail("stopped by something else after %d terminals: %s", made, strerror(errno));
  return made <= 256 ? PASS : fail("made %d terminals", made);
}

static const struct attack list[] = {
    {"mknod", make_nodes},          {"whiteout", make_whiteout}, {"only-harmless", only_harmless},
    {"forbidden", forbidden_paths}, {"fixed", dev_is_fixed},     {"null-is-null", null_is_null},
    {"terminals", terminals},
};
GROUP(devices, list);
