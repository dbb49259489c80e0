// CVE-2019-5736: process 1 is the host's program in our machine. It cannot be read, traced, stopped or replaced.
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attacks.h"

static char agent_state(void) {
  char text[512];
  if (slurp("/proc/1/stat", text, sizeof text) <= 0) return '?';
  const char* close = strrchr(text, ')');
  return close != NULL && close[1] == ' ' ? close[2] : '?';
}

static int trace(void) {
  if (ptrace(PTRACE_ATTACH, 1, 0, 0) == 0) return fail("attached to process 1");
  return must_fail(ptrace(PTRACE_SEIZE, 1, 0, 0), "PTRACE_SEIZE of process 1");
}

// Without this the test above would pass for want of ptrace.
static int trace_own_child(void) {
  pid_t pid = fork();
  if (pid == 0) {
    for (;;) pause();
  }
  int result = PASS;
  if (ptrace(PTRACE_ATTACH, pid, 0, 0) != 0) result = fail("debuggers do not work: %s", strerror(errno));
  kill(pid, SIGKILL);
  waitpid(pid, NULL, 0);
  return result;
}

static int memory_calls(void) {
  char local[8];
  struct iovec mine = {local, sizeof local}, theirs = {(void*)0x400000, sizeof local};
  if (syscall(SYS_process_vm_readv, 1, &mine, 1, &theirs, 1, 0) >= 0) return fail("process_vm_readv worked");
  if (syscall(SYS_process_vm_writev, 1, &mine, 1, &theirs, 1, 0) >= 0) return fail("process_vm_writev worked");
  int fd = (int)syscall(SYS_pidfd_open, 1, 0);
  if (fd < 0) return PASS;
  for (int i = 0; i < 32; ++i) {
    if (syscall(SYS_pidfd_getfd, fd, i, 0) >= 0) return fail("took descriptor %d of process 1", i);
  }
  return PASS;
}

static int proc_files(void) {
  static const char* const names[] = {"mem",     "maps",  "smaps",   "environ",    "auxv",
                                      "syscall", "stack", "pagemap", "clear_refs", "io"};
  for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); ++i) {
    char path[64], buf[64];
    snprintf(path, sizeof path, "/proc/1/%s", names[i]);
    if (strcmp(names[i], "mem") == 0 || strcmp(names[i], "clear_refs") == 0) {
      if (open(path, O_WRONLY | O_CLOEXEC) >= 0) return fail("%s opens for writing", path);
    }
    if (strcmp(names[i], "clear_refs") != 0 && slurp(path, buf, sizeof buf) > 0) return fail("%s can be read", path);
  }
  return PASS;
}

static int proc_links(void) {
  static const char* const names[] = {"exe", "cwd", "root", "ns/user", "ns/mnt"};
  for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); ++i) {
    char path[64], target[256];
    snprintf(path, sizeof path, "/proc/1/%s", names[i]);
    if (readlink(path, target, sizeof target) >= 0) return fail("%s can be read", path);
    if (open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC) >= 0) return fail("%s opens", path);
    if (open(path, O_PATH | O_CLOEXEC) >= 0) return fail("%s opens as a path", path);
  }
  if (open("/proc/1/exe", O_WRONLY | O_CLOEXEC) >= 0) return fail("/proc/1/exe opens for writing");
  return must_fail(open("/proc/1/exe", O_RDWR | O_TRUNC | O_CLOEXEC), "truncating /proc/1/exe");
}

static int proc_fds(void) {
  for (int i = 0; i < 64; ++i) {
    char path[64];
    snprintf(path, sizeof path, "/proc/1/fd/%d", i);
    if (open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC) >= 0 || open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC) >= 0) {
      return fail("opened descriptor %d of process 1", i);
    }
  }
  DIR* d = opendir("/proc/1/fd");
  if (d == NULL) return PASS;
  struct dirent* e;
  while ((e = readdir(d)) != NULL) {
    if (e->d_name[0] != '.') return fail("/proc/1/fd can be listed");
  }
  closedir(d);
  return PASS;
}

static int signals(void) {
  for (int s = 1; s < 65; ++s) {
    // What the agent uses to notice its own children is harmless.
    kill(1, s);
    union sigval value = {.sival_int = 1};
    sigqueue(1, s, value);
    syscall(SYS_tgkill, 1, 1, s);
  }
  int fd = (int)syscall(SYS_pidfd_open, 1, 0);
  if (fd >= 0) {
    syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0);
    syscall(SYS_pidfd_send_signal, fd, SIGSTOP, NULL, 0);
  }
  usleep(200000);
  char state = agent_state();
  if (state == 'T' || state == 't' || state == 'Z' || state == 'X' || state == '?')
    return fail("process 1 is in state %c", state);
  return PASS;
}

// After everything above: the agent still is there and is not stopped.
static int alive(void) {
  char state = agent_state();
  return state == 'S' || state == 'R' || state == 'D' ? PASS : fail("process 1 is in state %c", state);
}

// The file of the agent is not in the machine's tree, or at least neither readable nor writable there.
static int binary(void) {
  static const char* const paths[] = {"/sandbar-guest", "/sbin/sandbar-guest", "/usr/bin/sandbar-guest",
                                      "/.sandbar/sandbar-guest"};
  for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); ++i) {
    if (open(paths[i], O_RDONLY | O_CLOEXEC) >= 0) return fail("%s can be read", paths[i]);
  }
  return PASS;
}

// CVE-2019-5736 from the other side: our own program's file is the image's, and a running one is not writable.
static int own_exe(void) {
  return must_fail_with(open("/proc/self/exe", O_WRONLY | O_CLOEXEC), "writing to the running program", ETXTBSY,
                        EACCES);
}

static const struct attack list[] = {
    {"ptrace", trace},
    {"ptrace-own-child", trace_own_child},
    {"memory-calls", memory_calls},
    {"proc-files", proc_files},
    {"proc-links", proc_links},
    {"proc-fds", proc_fds},
    {"signals", signals},
    {"alive", alive},
    {"binary", binary},
    {"own-exe", own_exe},
};
GROUP(agent, list);
