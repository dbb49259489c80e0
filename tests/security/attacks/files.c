// Files that a guest leaves on disk must not harm the host or the layers below.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "attacks.h"

static int scratch(char* path, size_t size) {
  snprintf(path, size, "/tmp/attack-%d", (int)getpid());
  int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return -1;
  close(fd);
  return 0;
}

static int overlay_xattrs(void) {
  char path[64];
  if (scratch(path, sizeof path) != 0) return fail("no /tmp");
  static const char* const names[] = {"trusted.overlay.redirect",
                                      "trusted.overlay.opaque",
                                      "trusted.overlay.metacopy",
                                      "trusted.overlay.whiteout",
                                      "trusted.anything",
                                      "security.evm",
                                      "security.ima"};
  int result = PASS;
  for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && result == PASS; ++i) {
    if (setxattr(path, names[i], "y", 1, 0) == 0) result = fail("set %s", names[i]);
  }
  unlink(path);
  return result;
}

static int foreign_owner(void) {
  char path[64];
  if (scratch(path, sizeof path) != 0) return fail("no /tmp");
  int result = PASS;
  if (chown(path, 70000, 70000) == 0) result = fail("chown to an id outside of the range");
  if (result == PASS && chown(path, 4294967294U, (gid_t)-1) == 0) result = fail("chown to a huge id");
  unlink(path);
  return result;
}

// File capabilities are allowed, but must be tied to our user namespace; the kernel refuses the untied form's use
// outside.
static int immutable(void) {
  char path[64];
  if (scratch(path, sizeof path) != 0) return fail("no /tmp");
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  int flags = 0x10 /* FS_IMMUTABLE_FL */ | 0x20 /* FS_APPEND_FL */;
  int result = must_fail(ioctl(fd, _IOW('f', 2, long), &flags), "an immutable file that teardown could not delete");
  close(fd);
  unlink(path);
  return result;
}

static int project_id(void) {
  char path[64];
  if (scratch(path, sizeof path) != 0) return fail("no /tmp");
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  struct {
    unsigned xflags, extsize, nextents, projid, cowextsize;
    char pad[8];
  } attr = {.projid = 7};
  int result = must_fail(ioctl(fd, _IOW('X', 32, char[28]), &attr), "changing the quota project");
  close(fd);
  unlink(path);
  return result;
}

// btrfs below the overlay: its controls must not be reachable.
static int store_controls(void) {
  int fd = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  char args[4096] = {0};
  strcpy(args + 8, "evil");
  if (ioctl(fd, _IOW(0x94, 14, char[4096]), args) == 0) return fail("made a subvolume");
  if (ioctl(fd, _IOW(0x94, 1, char[4096]), args) == 0) return fail("made a snapshot");
  return must_fail(ioctl(fd, _IOWR(0x94, 40, char[16]), args), "quota control of the store");
}

// Compression is done by threads of the kernel, whose time is nobody's.
static int compression(void) {
  char path[64], below[80];
  if (scratch(path, sizeof path) != 0) return fail("no /tmp");
  int result = PASS;
  if (setxattr(path, "btrfs.compression", "zstd", 4, 0) == 0) result = fail("a file is compressed");
  unlink(path);
  if (result != PASS) return result;
  if (mkdir(path, 0755) != 0) return fail("no directory");
  // A directory may be told; what is in it must not be.
  setxattr(path, "btrfs.compression", "zstd", 4, 0);
  snprintf(below, sizeof below, "%s/file", path);
  int fd = open(below, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  char value[16];
  if (fd < 0) result = fail("no file");
  if (fd >= 0 && fgetxattr(fd, "btrfs.compression", value, sizeof value) >= 0) result = fail("a file inherits it");
  if (fd >= 0) close(fd);
  unlink(below);
  rmdir(path);
  return result;
}

static const struct attack list[] = {
    {"overlay-xattrs", overlay_xattrs}, {"foreign-owner", foreign_owner},   {"immutable", immutable},
    {"project-id", project_id},         {"store-controls", store_controls}, {"compression", compression},
};
GROUP(files, list);
