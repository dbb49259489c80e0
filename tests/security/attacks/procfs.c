// /proc and /sys: nothing of the host can be set, and its facts are covered. Redirected writes (CVE-2025-52881) and the
// release_agent of version 1 groups (CVE-2022-0492) have no file to go to.
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "attacks.h"

typedef int (*visit_file)(const char* path, const struct stat* st);

static int scan(const char* dir, int depth, visit_file visit) {
  DIR* d = opendir(dir);
  if (d == NULL) return PASS;
  struct dirent* e;
  int result = PASS;
  while (result == PASS && (e = readdir(d)) != NULL) {
    if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
    char path[2048];
    snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
    struct stat st;
    if (lstat(path, &st) != 0) continue;
    if (S_ISDIR(st.st_mode) && depth < 12) result = scan(path, depth + 1, visit);
    if (S_ISREG(st.st_mode)) result = visit(path, &st);
  }
  closedir(d);
  return result;
}

static int not_writable(const char* path, const struct stat* st) {
  (void)st;
  int fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
  return fd >= 0 ? fail("%s opens for writing", path) : PASS;
}

static int sysctl_writes(void) {
  return scan("/proc/sys", 0, not_writable);
}
static int sys_writes(void) {
  int result = scan("/sys", 0, not_writable);
  if (result != PASS) return result;
  return must_fail(mkdir("/sys/new", 0755), "mkdir in /sys");
}

// Everything directly below /proc that is a file; the processes' own directories come elsewhere.
static int top_level_writes(void) {
  DIR* d = opendir("/proc");
  if (d == NULL) return fail("no /proc");
  struct dirent* e;
  while ((e = readdir(d)) != NULL) {
    char path[512];
    struct stat st;
    snprintf(path, sizeof path, "/proc/%s", e->d_name);
    if (lstat(path, &st) != 0 || !S_ISREG(st.st_mode)) continue;
    if (open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC) >= 0) return fail("%s opens for writing", path);
  }
  closedir(d);
  return PASS;
}

static int named_controls(void) {
  static const char* const paths[] = {"/proc/sys/kernel/core_pattern",
                                      "/proc/sys/kernel/modprobe",
                                      "/proc/sys/kernel/hotplug",
                                      "/proc/sys/kernel/panic",
                                      "/proc/sys/kernel/sysrq",
                                      "/proc/sysrq-trigger",
                                      "/proc/sys/vm/drop_caches",
                                      "/proc/sys/vm/overcommit_memory",
                                      "/proc/sys/kernel/hostname",
                                      "/proc/sys/net/ipv4/ip_forward",
                                      "/proc/sys/net/ipv4/ip_unprivileged_port_start",
                                      "/proc/sys/fs/binfmt_misc/register",
                                      "/proc/sys/kernel/ns_last_pid",
                                      "/proc/sys/user/max_user_namespaces",
                                      "/sys/kernel/uevent_helper",
                                      "/sys/power/state",
                                      "/sys/fs/cgroup/release_agent",
                                      "/sys/fs/cgroup/memory.max",
                                      "/proc/acpi/wakeup",
                                      "/proc/irq/default_smp_affinity",
                                      "/proc/mtrr",
                                      "/proc/scsi/scsi"};
  for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); ++i) {
    if (open(paths[i], O_WRONLY | O_NONBLOCK | O_CLOEXEC) >= 0) return fail("%s opens for writing", paths[i]);
  }
  return PASS;
}

// The same files by other roads: another process's root, a descriptor, a path with detours.
static int detours(void) {
  static const char* const paths[] = {
      "/proc/self/root/proc/sys/kernel/core_pattern", "/proc/1/root/proc/sys/kernel/core_pattern",
      "/proc/self/cwd/proc/sys/kernel/core_pattern", "/proc/thread-self/root/proc/sysrq-trigger",
      "/proc/./sys/../sys/kernel/core_pattern"};
  if (chdir("/") != 0) return fail("chdir");
  for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); ++i) {
    if (open(paths[i], O_WRONLY | O_CLOEXEC) >= 0) return fail("%s opens for writing", paths[i]);
  }
  int fd = open("/proc/sys", O_PATH | O_CLOEXEC);
  if (fd < 0) return PASS;
  return must_fail(openat(fd, "kernel/core_pattern", O_WRONLY | O_CLOEXEC), "openat below /proc/sys");
}

static int masked_reads(void) {
  static const char* const paths[] = {
      "/proc/kcore",        "/proc/kallsyms",    "/proc/kmsg",       "/proc/keys",        "/proc/key-users",
      "/proc/timer_list",   "/proc/sched_debug", "/proc/slabinfo",   "/proc/vmallocinfo", "/proc/iomem",
      "/proc/ioports",      "/proc/interrupts",  "/proc/modules",    "/proc/config.gz",   "/proc/diskstats",
      "/proc/partitions",   "/proc/kpagecount",  "/proc/kpageflags", "/proc/zoneinfo",    "/proc/buddyinfo",
      "/proc/pagetypeinfo", "/proc/softirqs",    "/proc/schedstat",  "/proc/swaps",       "/proc/mtrr"};
  for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); ++i) {
    char buf[256];
    if (slurp(paths[i], buf, sizeof buf) > 0) return fail("%s has content", paths[i]);
  }
  static const char* const dirs[] = {"/proc/acpi", "/proc/bus",  "/proc/driver",  "/proc/fs",
                                     "/proc/irq",  "/proc/scsi", "/proc/pressure"};
  for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); ++i) {
    DIR* d = opendir(dirs[i]);
    if (d == NULL) continue;
    struct dirent* e;
    while ((e = readdir(d)) != NULL) {
      if (e->d_name[0] != '.') return fail("%s shows %s", dirs[i], e->d_name);
    }
    closedir(d);
  }
  return PASS;
}

// Real sysfs and cgroupfs are not in the machine at all.
static int no_real_sysfs(void) {
  static const char* const paths[] = {"/sys", "/sys/fs/cgroup", "/sys/kernel", "/sys/fs"};
  for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); ++i) {
    struct statfs st;
    if (statfs(paths[i], &st) != 0) continue;
    if (st.f_type == 0x62656572 /* sysfs */ || st.f_type == 0x27e0eb /* cgroup */ ||
        st.f_type == 0x63677270 /* cgroup2 */ || st.f_type == 0x64626720 /* debugfs */ ||
        st.f_type == 0x74726163 /* tracefs */) {
      return fail("%s is the host's", paths[i]);
    }
  }
  return PASS;
}

static int is_release_agent(const char* path, const struct stat* st) {
  (void)st;
  const char* name = strrchr(path, '/') + 1;
  static const char* const bad[] = {"release_agent", "notify_on_release", "cgroup.procs", "tasks", "devices.allow"};
  for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); ++i) {
    if (strcmp(name, bad[i]) == 0) return fail("%s exists", path);
  }
  return PASS;
}

static int release_agent(void) {
  return scan("/sys/fs/cgroup", 0, is_release_agent);
}

static int cmdline_is_covered(void) {
  char host[4096];
  if (slurp("/proc/cmdline", host, sizeof host) < 0) return fail("no /proc/cmdline");
  if (strstr(host, "root=") != NULL || strstr(host, "init=") != NULL)
    return fail("/proc/cmdline is the host's: %s", host);
  return PASS;
}

static int oom_score(void) {
  int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (fd < 0) return PASS;
  return must_fail(write(fd, "-1000", 5), "immunity against the OOM killer");
}

static const struct attack list[] = {
    {"sysctl-writes", sysctl_writes},
    {"sys-writes", sys_writes},
    {"top-level-writes", top_level_writes},
    {"named-controls", named_controls},
    {"detours", detours},
    {"masked", masked_reads},
    {"no-real-sysfs", no_real_sysfs},
    {"release-agent", release_agent},
    {"cmdline", cmdline_is_covered},
    {"oom-score", oom_score},
};
GROUP(procfs, list);
