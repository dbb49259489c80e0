// Every namespace except the machine's user namespace belongs to the host, and a guest can make no new ones.
#include <fcntl.h>
#include <linux/nsfs.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attacks.h"

static const char* const kinds[] = {"mnt", "pid", "ipc", "uts", "cgroup", "net"};
static const int flags[] = {CLONE_NEWNS,     CLONE_NEWPID, CLONE_NEWIPC, CLONE_NEWUTS,
                            CLONE_NEWCGROUP, CLONE_NEWNET, CLONE_NEWUSER};

static int ownership(void) {
  for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); ++i) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/ns/%s", kinds[i]);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return fail("cannot open %s: %s", path, strerror(errno));
    // An owner outside of our user namespace is not shown.
    int owner = ioctl(fd, NS_GET_USERNS);
    if (owner >= 0) return fail("the %s namespace belongs to a user namespace we can reach", kinds[i]);
    if (errno != EPERM) return fail("NS_GET_USERNS of %s: %s", kinds[i], strerror(errno));
    close(fd);
  }
  return PASS;
}

static int parent_user(void) {
  int fd = open("/proc/self/ns/user", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return fail("cannot open the user namespace");
  return must_fail_with(ioctl(fd, NS_GET_PARENT), "NS_GET_PARENT of the user namespace", EPERM, EPERM);
}

static int in_user_namespace(void) {
  char map[256];
  if (slurp("/proc/self/uid_map", map, sizeof map) < 0) return fail("no uid_map");
  unsigned inside = 0, outside = 0, count = 0;
  if (sscanf(map, "%u %u %u", &inside, &outside, &count) != 3) return fail("odd uid_map: %s", map);
  if (outside == 0 || count > 65536) return fail("the host's ids are mapped: %s", map);
  return PASS;
}

static int unshare_each(void) {
  for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); ++i) {
    if (unshare(flags[i]) == 0) return fail("unshare(%#x) worked", (unsigned)flags[i]);
  }
  return must_fail(unshare(0x80), "unshare(NEWTIME)");
}

static int clone_each(void) {
  for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); ++i) {
    long pid = syscall(SYS_clone, (unsigned long)flags[i] | SIGCHLD, 0, 0, 0, 0);
    if (pid == 0) _exit(0);
    if (pid > 0) return fail("clone(%#x) worked", (unsigned)flags[i]);
  }
  return PASS;
}

static int clone3_each(void) {
  for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); ++i) {
    struct clone_args args = {.flags = (unsigned)flags[i], .exit_signal = SIGCHLD};
    long pid = syscall(SYS_clone3, &args, sizeof args);
    if (pid == 0) _exit(0);
    if (pid > 0) return fail("clone3(%#x) worked", (unsigned)flags[i]);
  }
  return PASS;
}

static int setns_each(void) {
  static const char* const from[] = {"self", "1"};
  for (size_t w = 0; w < 2; ++w) {
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); ++i) {
      char path[64];
      snprintf(path, sizeof path, "/proc/%s/ns/%s", from[w], kinds[i]);
      int fd = open(path, O_RDONLY | O_CLOEXEC);
      if (fd < 0) continue;
      if (setns(fd, 0) == 0) return fail("setns to %s worked", path);
      close(fd);
    }
  }
  return PASS;
}

static int setns_pidfd(void) {
  int fd = (int)syscall(SYS_pidfd_open, 1, 0);
  if (fd < 0) return PASS;
  return must_fail(setns(fd, CLONE_NEWNS | CLONE_NEWNET), "setns to the namespaces of process 1");
}

// A program of another user namespace would show here; all processes must be the machine's.
static int hostname_is_fixed(void) {
  return must_fail(sethostname("owned", 5), "sethostname");
}

static const struct attack list[] = {
    {"ownership", ownership},  {"parent-user", parent_user}, {"in-user-namespace", in_user_namespace},
    {"unshare", unshare_each}, {"clone", clone_each},        {"clone3", clone3_each},
    {"setns", setns_each},     {"setns-pidfd", setns_pidfd}, {"sethostname", hostname_is_fixed},
};
GROUP(namespaces, list);
