// Programs that use up what they can; each has its own command because a test watches the host meanwhile.
//   bomb-fork          forks until refused: PASS when refused below 100,000; its children end with it
//   bomb-memory        a child touches memory until it is killed: PASS when it was
//   fill-disk DIR      writes until ENOSPC or EDQUOT, then removes the file: PASS when refused
//   flood BYTES        writes that many bytes to stdout, nothing else
//   plant-setuid PATH  leaves a setuid program (a copy of itself) for a test to find on the host's disk
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attacks.h"

static int report(bool ok, const char* name, const char* why) {
  if (ok)
    printf("PASS bombs.%s\n", name);
  else
    printf("FAIL bombs.%s: %s\n", name, why);
  return !ok;
}

static int bomb_fork(void) {
  static pid_t children[100000];
  int count = 0;
  bool refused = false;
  while (count < 100000 && !refused) {
    pid_t pid = fork();
    if (pid == 0) {
      for (;;) pause();
    }
    if (pid < 0)
      refused = true;
    else
      children[count++] = pid;
  }
  // They hold our output open.
  for (int i = 0; i < count; ++i) kill(children[i], SIGKILL);
  for (int i = 0; i < count; ++i) waitpid(children[i], NULL, 0);
  printf("processes: %d\n", count);
  return report(refused, "fork", "never refused");
}

static int bomb_memory(void) {
  pid_t pid = fork();
  if (pid == 0) {
    const size_t step = 4 << 20;
    for (;;) {
      void* p = mmap(NULL, step, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (p == MAP_FAILED) _exit(3);
      memset(p, 1, step);
    }
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return report(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "memory", "the bomb was not killed");
}

static int fill_disk(const char* dir) {
  char path[1024];
  snprintf(path, sizeof path, "%s/filler", dir);
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return report(false, "disk", strerror(errno));
  static char block[1 << 20];
  for (size_t i = 0; i < sizeof block; ++i) block[i] = (char)(i * 2654435761U >> 13);
  unsigned long long total = 0;
  int error = 0;
  // A terabyte is "never refused".
  while (error == 0 && total < 1ULL << 40) {
    ssize_t n = write(fd, block, sizeof block);
    if (n < 0)
      error = errno;
    else
      total += (unsigned long long)n;
    if (error == 0 && total % (64 << 20) == 0 && fsync(fd) != 0) error = errno;
  }
  close(fd);
  unlink(path);
  printf("bytes: %llu\n", total);
  return report(error == ENOSPC || error == EDQUOT, "disk", error == 0 ? "never refused" : strerror(error));
}

static int flood(unsigned long long bytes) {
  static char block[65536];
  memset(block, 'x', sizeof block);
  for (size_t i = 79; i < sizeof block; i += 80) block[i] = '\n';
  while (bytes > 0) {
    size_t want = bytes < sizeof block ? (size_t)bytes : sizeof block;
    ssize_t n = write(1, block, want);
    if (n <= 0) return 1;
    bytes -= (unsigned long long)n;
  }
  return 0;
}

static int plant_setuid(const char* path) {
  int in = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  int out = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755);
  if (in < 0 || out < 0) return report(false, "setuid", strerror(errno));
  static char block[65536];
  ssize_t n;
  while ((n = read(in, block, sizeof block)) > 0) {
    if (write(out, block, (size_t)n) != n) return report(false, "setuid", strerror(errno));
  }
  if (is_root() && fchown(out, 0, 0) != 0) return report(false, "setuid", strerror(errno));
  if (fchmod(out, 04755) != 0) return report(false, "setuid", strerror(errno));
  return report(true, "setuid", "");
}

int run_bomb(int argc, char** argv) {
  const char* what = argc > 1 ? argv[1] : "";
  if (strcmp(what, "bomb-fork") == 0) return bomb_fork();
  if (strcmp(what, "bomb-memory") == 0) return bomb_memory();
  if (strcmp(what, "fill-disk") == 0 && argc > 2) return fill_disk(argv[2]);
  if (strcmp(what, "flood") == 0 && argc > 2) return flood(strtoull(argv[2], NULL, 10));
  if (strcmp(what, "plant-setuid") == 0 && argc > 2) return plant_setuid(argv[2]);
  return -1;
}
