// The host's files, processes, sockets and memory, and other machines: not there. What to look for comes by
// environment.
#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "attacks.h"

// Calls f with each piece of the variable's value.
static int each(const char* variable, const char* separators, int (*f)(const char*)) {
  const char* value = getenv(variable);
  if (value == NULL || *value == 0) return skip("not told what to look for");
  char copy[8192];
  snprintf(copy, sizeof copy, "%s", value);
  char* save = NULL;
  for (char* piece = strtok_r(copy, separators, &save); piece != NULL; piece = strtok_r(NULL, separators, &save)) {
    int result = f(piece);
    if (result != PASS) return result;
  }
  return PASS;
}

static int has_canary(const char* path) {
  char text[65536];
  if (slurp(path, text, sizeof text) <= 0) return PASS;
  if (canary() == NULL) return PASS;
  return strstr(text, canary()) != NULL ? fail("%s has the host's canary", path) : PASS;
}

static int try_path(const char* path) {
  static const char* const roots[] = {"",
                                      "/proc/self/root",
                                      "/proc/1/root",
                                      "/proc/self/cwd",
                                      "/proc/self/root/../../../..",
                                      "/proc/self/task/1/root",
                                      "/../../../.."};
  for (size_t i = 0; i < sizeof(roots) / sizeof(roots[0]); ++i) {
    char full[4096];
    snprintf(full, sizeof full, "%s%s", roots[i], path);
    int result = has_canary(full);
    if (result != PASS) return result;
  }
  return PASS;
}
static int files(void) {
  return each("ATTACK_HOST_PATHS", ":", try_path);
}

// Each visible process: its command line, environment and root are the machine's.
static int processes(void) {
  DIR* d = opendir("/proc");
  if (d == NULL) return fail("no /proc");
  struct dirent* e;
  int result = PASS;
  while (result == PASS && (e = readdir(d)) != NULL) {
    if (e->d_name[0] < '0' || e->d_name[0] > '9') continue;
    // Our own command line and environment name the canary.
    if (atoi(e->d_name) == getpid() || atoi(e->d_name) == getppid()) continue;
    static const char* const names[] = {"cmdline", "comm", "cgroup", "mountinfo"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && result == PASS; ++i) {
      char path[512];
      snprintf(path, sizeof path, "/proc/%s/%s", e->d_name, names[i]);
      result = has_canary(path);
    }
  }
  closedir(d);
  return result;
}

static int try_pid(const char* text) {
  int pid = atoi(text);
  if (pid <= 1) return PASS;
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/cmdline", pid);
  int result = has_canary(path);
  if (result != PASS) return result;
  // 0 is only a probe. A process of ours may have that number; it then is visible in our /proc.
  if (kill(pid, 0) == 0 && access(path, F_OK) != 0) return fail("process %d can be signalled", pid);
  return PASS;
}
static int pids(void) {
  return each("ATTACK_HOST_PIDS", ",", try_pid);
}

// A refusal may be said in words; the service's own answer must not come through.
static int try_service(const char* where) {
  char ip[64];
  int port = 0;
  if (sscanf(where, "%63[^:]:%d", ip, &port) != 2) return fail("bad ATTACK_HOST_SERVICES: %s", where);
  struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((unsigned short)port)};
  if (inet_pton(AF_INET, ip, &to.sin_addr) != 1) return fail("bad address %s", ip);
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  struct timeval limit = {10, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  if (connect(fd, (struct sockaddr*)&to, sizeof to) != 0) return PASS;
  static const char request[] = "GET / HTTP/1.0\r\nHost: localhost\r\n\r\n";
  char answer[8192];
  size_t have = 0;
  if (send(fd, request, sizeof request - 1, MSG_NOSIGNAL) > 0) {
    ssize_t n;
    while (have + 1 < sizeof answer && (n = recv(fd, answer + have, sizeof answer - 1 - have, 0)) > 0)
      have += (size_t)n;
  }
  answer[have] = 0;
  close(fd);
  if (canary() != NULL && strstr(answer, canary()) != NULL) return fail("%s answered with the canary", where);
  return PASS;
}
static int services(void) {
  return each("ATTACK_HOST_SERVICES", ",", try_service);
}

static int try_abstract(const char* name) {
  struct sockaddr_un to = {.sun_family = AF_UNIX};
  size_t n = strlen(name);
  if (n + 1 > sizeof to.sun_path) return fail("name too long");
  memcpy(to.sun_path + 1, name, n);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
  return must_fail(connect(fd, (struct sockaddr*)&to, size), "connecting to the host's abstract socket");
}
static int abstract_sockets(void) {
  return each("ATTACK_ABSTRACT", ",", try_abstract);
}

static int unix_table(void) {
  return has_canary("/proc/net/unix");
}

// A new machine has no shared memory, semaphores or queues: those of the host or a neighbour would show here.
static int sysv_ipc(void) {
  static const char* const tables[] = {"/proc/sysvipc/shm", "/proc/sysvipc/sem", "/proc/sysvipc/msg"};
  for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); ++i) {
    char text[65536];
    if (slurp(tables[i], text, sizeof text) <= 0) continue;
    char* second = strchr(text, '\n');
    if (second != NULL && second[1] != 0) return fail("%s is not empty", tables[i]);
  }
  return PASS;
}

static int interfaces(void) {
  char text[8192];
  if (slurp("/proc/net/dev", text, sizeof text) < 0) return fail("no /proc/net/dev");
  // Two lines of headings, then lo alone.
  int lines = 0;
  for (char* c = text; *c != 0; ++c) lines += *c == '\n';
  if (lines != 3 || strstr(text, "lo:") == NULL) return fail("there are other interfaces than lo");
  return PASS;
}

static const struct attack list[] = {
    {"files", files},
    {"processes", processes},
    {"pids", pids},
    {"services", services},
    {"abstract-sockets", abstract_sockets},
    {"unix-table", unix_table},
    {"sysv-ipc", sysv_ipc},
    {"interfaces", interfaces},
};
GROUP(host, list);
