// Mounts, and the mount races of container runtimes: nothing can be mounted, unmounted or remounted.
#include <fcntl.h>
#include <linux/mount.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "attacks.h"

#define MS_RDONLY_ 1UL
#define MS_REMOUNT_ 32UL
#define MS_BIND_ 4096UL
#define MS_REC_ 16384UL
#define MS_PRIVATE_ (1UL << 18)

static long do_mount(const char* source, const char* target, const char* type, unsigned long flags, const char* data) {
  return syscall(SYS_mount, source, target, type, flags, data);
}

static int mount_types(void) {
  static const char* const types[] = {"tmpfs",  "proc",   "sysfs",    "cgroup",     "cgroup2", "overlay",
                                      "devpts", "mqueue", "ramfs",    "bpf",        "debugfs", "tracefs",
                                      "fuse",   "ext4",   "devtmpfs", "securityfs", "btrfs",   "binfmt_misc"};
  for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); ++i) {
    if (do_mount("none", "/tmp", types[i], 0, "") == 0) return fail("mounted %s on /tmp", types[i]);
  }
  return PASS;
}

static int bind(void) {
  if (do_mount("/proc", "/tmp", NULL, MS_BIND_ | MS_REC_, NULL) == 0) return fail("bind of /proc worked");
  return must_fail(do_mount("/", "/mnt", NULL, MS_BIND_, NULL), "bind of /");
}

static int remount(void) {
  static const char* const targets[] = {"/", "/proc", "/proc/sys", "/dev", "/sys", "/dev/shm"};
  for (size_t i = 0; i < sizeof(targets) / sizeof(targets[0]); ++i) {
    if (do_mount(NULL, targets[i], NULL, MS_REMOUNT_, NULL) == 0) return fail("remounted %s", targets[i]);
    if (do_mount(NULL, targets[i], NULL, MS_REMOUNT_ | MS_BIND_, NULL) == 0)
      return fail("bind-remounted %s", targets[i]);
    if (do_mount(NULL, targets[i], NULL, MS_PRIVATE_ | MS_REC_, NULL) == 0) return fail("%s made private", targets[i]);
  }
  return PASS;
}

// Every mount point that we can see, the masks over /proc among them.
static int unmount_everything(void) {
  FILE* in = fopen("/proc/self/mountinfo", "r");
  if (in == NULL) return fail("no mountinfo");
  char line[4096];
  int seen = 0;
  while (fgets(line, sizeof line, in) != NULL) {
    char point[2048];
    if (sscanf(line, "%*s %*s %*s %*s %2047s", point) != 1) continue;
    ++seen;
    for (int f = 0; f < 2; ++f) {
      if (syscall(SYS_umount2, point, f == 0 ? 0 : 2 /* MNT_DETACH */) == 0) {
        fclose(in);
        return fail("unmounted %s", point);
      }
    }
  }
  fclose(in);
  return seen > 3 ? PASS : fail("only %d mounts are visible", seen);
}

static int new_api(void) {
  int fd = (int)syscall(SYS_fsopen, "tmpfs", 0);
  if (fd >= 0) return fail("fsopen worked");
  if (syscall(SYS_open_tree, AT_FDCWD, "/", 1 /* CLONE */) >= 0) return fail("open_tree(CLONE) worked");
  if (syscall(SYS_fspick, AT_FDCWD, "/proc", 0) >= 0) return fail("fspick worked");
  if (syscall(SYS_move_mount, AT_FDCWD, "/proc", AT_FDCWD, "/tmp", 0) >= 0) return fail("move_mount worked");
  struct mount_attr attr = {.attr_clr = MOUNT_ATTR_RDONLY};
  if (syscall(SYS_mount_setattr, AT_FDCWD, "/proc/sys", 0, &attr, sizeof attr) >= 0)
    return fail("mount_setattr worked");
  attr.attr_clr = MOUNT_ATTR_NODEV;
  if (syscall(SYS_mount_setattr, AT_FDCWD, "/", 0, &attr, sizeof attr) >= 0) return fail("mount_setattr nodev worked");
  return must_fail(syscall(467, AT_FDCWD, "/", 1, &attr, sizeof attr), "open_tree_attr");
}

// Without the clone flag it is only another open, but there is no use for it either.
static int open_tree_plain(void) {
  return must_fail(syscall(SYS_open_tree, AT_FDCWD, "/", 0), "open_tree");
}

static int pivot(void) {
  return must_fail(syscall(SYS_pivot_root, ".", "."), "pivot_root");
}

// The classic way out of a chroot ends at the machine's own root.
static int chroot_escape(void) {
  struct stat before, after;
  if (stat("/", &before) != 0) return fail("stat");
  if (mkdir("/tmp/jail", 0755) != 0 && errno != EEXIST) return fail("mkdir: %s", strerror(errno));
  int root = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (chroot("/tmp/jail") != 0) return is_root() ? fail("chroot: %s", strerror(errno)) : PASS;
  if (fchdir(root) != 0) return fail("fchdir");
  for (int i = 0; i < 64; ++i) {
    if (chdir("..") != 0) return fail("chdir");
  }
  if (stat(".", &after) != 0) return fail("stat");
  if (before.st_ino != after.st_ino || before.st_dev != after.st_dev) return fail("above the machine's root");
  return PASS;
}

// The overlay, and every other mount a guest can write to, must refuse device nodes and (but /) setuid files.
static int flags_of_mounts(void) {
  FILE* in = fopen("/proc/self/mountinfo", "r");
  if (in == NULL) return fail("no mountinfo");
  char line[4096];
  while (fgets(line, sizeof line, in) != NULL) {
    char point[2048], options[512];
    if (sscanf(line, "%*s %*s %*s %*s %2047s %511s", point, options) != 2) continue;
    bool writable = strncmp(options, "rw", 2) == 0;
    bool pts = strcmp(point, "/dev/pts") == 0;
    if (writable && !pts && strstr(options, "nodev") == NULL) return fail("%s is writable without nodev", point);
    bool root = strcmp(point, "/") == 0;
    if (writable && !root && strstr(options, "nosuid") == NULL) return fail("%s is writable without nosuid", point);
  }
  fclose(in);
  return PASS;
}

// Paths of the host say where the store is.
static int no_host_paths_shown(void) {
  char text[65536];
  if (slurp("/proc/self/mountinfo", text, sizeof text) < 0) return fail("no mountinfo");
  static const char* const hints[] = {"dir=/var", "dir=/run",   "dir=/home", "dir=/tmp",
                                      "/var/lib", "/var/cache", "/var/tmp",  ".sock"};
  for (size_t i = 0; i < sizeof(hints) / sizeof(hints[0]); ++i) {
    if (strstr(text, hints[i]) != NULL) return fail("mountinfo shows %s", hints[i]);
  }
  if (canary() != NULL && strstr(text, canary()) != NULL) return fail("mountinfo shows the canary");
  return PASS;
}

static const struct attack list[] = {
    {"mount", mount_types},         {"bind", bind},
    {"remount", remount},           {"umount", unmount_everything},
    {"new-api", new_api},           {"pivot", pivot},
    {"open-tree", open_tree_plain}, {"chroot-escape", chroot_escape},
    {"flags", flags_of_mounts},     {"host-paths", no_host_paths_shown},
};
GROUP(mounts, list);
