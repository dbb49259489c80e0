// Nothing of the program that started us: descriptors, directories, environment, keyring, terminal, signals
// (CVE-2024-21626).
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "attacks.h"

extern char** environ;

static int descriptors(void) {
  for (int fd = 3; fd < 1024; ++fd) {
    if (fcntl(fd, F_GETFD) < 0) continue;
    char path[64], target[256] = {0};
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (readlink(path, target, sizeof target - 1) < 0) strcpy(target, "?");
    return fail("descriptor %d is open: %s", fd, target);
  }
  return PASS;
}

// 0, 1, 2 may be pipes, sockets, a terminal of ours or /dev/null, never a file or directory of the host's.
static int standard_descriptors(void) {
  for (int fd = 0; fd < 3; ++fd) {
    struct stat st;
    if (fstat(fd, &st) != 0) continue;
    if (S_ISDIR(st.st_mode) || S_ISBLK(st.st_mode)) return fail("descriptor %d is a directory or disk", fd);
    if (!S_ISREG(st.st_mode)) continue;
    char path[64], target[512] = {0};
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    struct stat seen;
    // A redirection in the machine is fine: then the file is in the machine's tree, too.
    if (readlink(path, target, sizeof target - 1) < 0 || stat(target, &seen) != 0 || seen.st_ino != st.st_ino) {
      return fail("descriptor %d is a file from elsewhere: %s", fd, target);
    }
  }
  return PASS;
}

static int chdir_by_descriptor(void) {
  for (int fd = 0; fd < 1024; ++fd) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (chdir(path) == 0) return fail("descriptor %d is a directory", fd);
    snprintf(path, sizeof path, "/proc/self/fd/%d/../../../../..", fd);
    if (chdir(path) == 0) return fail("descriptor %d leads to a directory", fd);
  }
  return PASS;
}

static int working_directory(void) {
  char cwd[4096];
  if (getcwd(cwd, sizeof cwd) == NULL) return fail("getcwd: %s", strerror(errno));
  if (strncmp(cwd, "(unreachable)", 13) == 0) return fail("the working directory is outside: %s", cwd);
  struct stat above, root;
  for (int i = 0; i < 64; ++i) {
    if (chdir("..") != 0) return fail("chdir: %s", strerror(errno));
  }
  if (stat(".", &above) != 0 || stat("/", &root) != 0) return fail("stat");
  return above.st_ino == root.st_ino && above.st_dev == root.st_dev ? PASS
                                                                    : fail("above the working directory is not /");
}

static int environment(void) {
  for (char** e = environ; *e != NULL; ++e) {
    if (strncmp(*e, "ATTACK_", 7) == 0) continue;
    if (canary() != NULL && strstr(*e, canary()) != NULL) return fail("the canary is in the environment");
    static const char* const bad[] = {
        "SANDBAR_", "INVOCATION_ID=", "NOTIFY_SOCKET=", "LISTEN_FDS=", "SSH_", "DBUS_", "XDG_RUNTIME_DIR="};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); ++i) {
      if (strncmp(*e, bad[i], strlen(bad[i])) == 0) return fail("inherited %s", bad[i]);
    }
  }
  return PASS;
}

static int terminal(void) {
  return must_fail_with(open("/dev/tty", O_RDWR | O_CLOEXEC), "a controlling terminal", ENXIO, ENOENT);
}

static int signal_state(void) {
  char text[4096];
  if (slurp("/proc/self/status", text, sizeof text) < 0) return fail("no status");
  const char *blocked = strstr(text, "\nSigBlk:\t"), *ignored = strstr(text, "\nSigIgn:\t");
  if (blocked == NULL || ignored == NULL) return fail("no signal lines");
  if (strtoull(blocked + 9, NULL, 16) != 0) return fail("signals are blocked");
  // Shells ignore SIGINT and SIGQUIT for their children.
  if ((strtoull(ignored + 9, NULL, 16) & ~6ULL) != 0) return fail("signals are ignored");
  return PASS;
}

static int identity(void) {
  char text[4096];
  if (slurp("/proc/self/status", text, sizeof text) < 0) return fail("no status");
  // 65534 is how an unmapped id of the host looks from here.
  gid_t groups[64];
  int n = getgroups(64, groups);
  for (int i = 0; i < n; ++i) {
    if (groups[i] == 65534) return fail("a group of the host's is among ours");
  }
  return getuid() != 65534 && getgid() != 65534 ? PASS : fail("running with an id of the host's");
}

static const struct attack list[] = {
    {"descriptors", descriptors},
    {"standard-descriptors", standard_descriptors},
    {"chdir-by-descriptor", chdir_by_descriptor},
    {"working-directory", working_directory},
    {"environment", environment},
    {"terminal", terminal},
    {"signals", signal_state},
    {"identity", identity},
};
GROUP(inherited, list);
