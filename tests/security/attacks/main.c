#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attacks.h"

static const struct attack_group* const groups[] = {
    &namespaces_group, &mounts_group,  &devices_group,   &procfs_group, &agent_group,
    &syscalls_group,   &sockets_group, &inherited_group, &host_group,   &files_group,
};
enum { GROUPS = sizeof(groups) / sizeof(groups[0]) };

static char* reason;  // shared with the child that runs the attack

int fail(const char* format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(reason, 400, format, args);
  va_end(args);
  return FAIL;
}

int skip(const char* why) {
  snprintf(reason, 400, "%s", why);
  return SKIP;
}

int must_fail(long result, const char* what) {
  return result >= 0 ? fail("%s worked", what) : PASS;
}

int must_fail_with(long result, const char* what, int want, int or_want) {
  int error = errno;
  if (result >= 0) return fail("%s worked", what);
  if (error != want && error != or_want) return fail("%s: %s", what, strerror(error));
  return PASS;
}

bool is_root(void) {
  return geteuid() == 0;
}

const char* canary(void) {
  const char* value = getenv("ATTACK_CANARY");
  return value != NULL && *value != 0 ? value : NULL;
}

long slurp(const char* path, char* out, size_t size) {
  int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return -1;
  size_t have = 0;
  while (have + 1 < size) {
    ssize_t n = read(fd, out + have, size - 1 - have);
    if (n <= 0) {
      if (n < 0 && have == 0) {
        close(fd);
        return -1;
      }
      break;
    }
    have += (size_t)n;
  }
  out[have] = 0;
  close(fd);
  return (long)have;
}

// In a child: an attack may crash, be killed by the filter, or change the process.
static int run_one(const struct attack_group* group, const struct attack* attack) {
  reason[0] = 0;
  fflush(stdout);
  pid_t pid = fork();
  if (pid == 0) {
    alarm(180);
    _exit(attack->run());
  }
  int status = 0;
  waitpid(pid, &status, 0);
  int result = WIFEXITED(status) ? WEXITSTATUS(status) : FAIL;
  if (WIFSIGNALED(status)) snprintf(reason, 400, "ended by signal %d", WTERMSIG(status));
  if (result == PASS) printf("PASS %s.%s\n", group->name, attack->name);
  if (result == SKIP) printf("SKIP %s.%s: %s\n", group->name, attack->name, reason);
  if (result != PASS && result != SKIP) printf("FAIL %s.%s: %s\n", group->name, attack->name, reason);
  return result != PASS && result != SKIP;
}

int main(int argc, char** argv) {
  reason = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (reason == MAP_FAILED) return 2;
  // For tests whose door into the machine is root only.
  if (argc > 2 && strcmp(argv[1], "--as") == 0) {
    unsigned id = (unsigned)strtoul(argv[2], NULL, 10);
    if (setgroups(0, NULL) != 0 || setresgid(id, id, id) != 0 || setresuid(id, id, id) != 0) return 2;
    prctl(PR_SET_DUMPABLE, 1);  // as after an exec; the change of ids had cleared it
    argc -= 2;
    argv += 2;
  }
  const char* what = argc > 1 ? argv[1] : "all";
  int bomb = run_bomb(argc, argv);
  if (bomb >= 0) return bomb;
  int failed = 0, ran = 0;
  for (size_t g = 0; g < GROUPS; ++g) {
    for (size_t i = 0; i < groups[g]->count; ++i) {
      char name[128];
      snprintf(name, sizeof name, "%s.%s", groups[g]->name, groups[g]->attacks[i].name);
      if (strcmp(what, "list") == 0) {
        puts(name);
        ran = 1;
        continue;
      }
      if (strcmp(what, "all") != 0 && strcmp(what, groups[g]->name) != 0 && strcmp(what, name) != 0) continue;
      failed += run_one(groups[g], &groups[g]->attacks[i]);
      ran = 1;
    }
  }
  if (!ran) fprintf(stderr, "no such attack: %s\n", what);
  return failed != 0 || !ran;
}
