// A stand-in for the guest agent in tests of the spawner: whoever connects sends a shell script and ends its side, and
// gets the output and a last line "exit:<status>". Compiled statically when the tests run.
#pragma once

namespace sandbar::spawner {

inline constexpr const char* kTestAgent = R"c(
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int argc, char** argv) {
  if (argc != 5 || strcmp(argv[1], "--listen-fd") || strcmp(argv[3], "--join-fds")) return 3;
  int listener = atoi(argv[2]);
  for (;;) {
    int c = accept(listener, 0, 0);
    if (c < 0) { if (errno == EAGAIN) usleep(1000); continue; }
    static char script[65536];
    size_t n = 0;
    ssize_t r;
    while (n < sizeof script - 1 && (r = read(c, script + n, sizeof script - 1 - n)) != 0)
      if (r > 0) n += r; else usleep(1000);
    script[n] = 0;
    if (!strncmp(script, "agent-exit ", 11)) return atoi(script + 11);
    pid_t pid = fork();
    if (pid == 0) {
      char* fds = strdup(argv[4]);
      for (char* f = strtok(fds, ","); f; f = strtok(0, ",")) {
        if (write(atoi(f), "0", 1) != 1) { dprintf(c, "join %s: %s\n", f, strerror(errno)); _exit(99); }
        close(atoi(f));
      }
      close(listener);
      dup2(c, 1); dup2(c, 2); close(c);
      char* args[] = {"sh", "-c", script, 0};
      char* env[] = {"PATH=/bin", 0};
      execve("/bin/sh", args, env);
      _exit(98);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    dprintf(c, "exit:%d\n", WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    close(c);
    while (waitpid(-1, 0, WNOHANG) > 0) {}
  }
}
)c";

// The same where there is one stream instead of connections: a script comes after its length and a newline.
inline constexpr const char* kStreamAgent = R"c(
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int argc, char** argv) {
  if (argc != 7 || strcmp(argv[1], "--stream-fd") || strcmp(argv[2], "0") || strcmp(argv[3], "--elevate")) return 3;
  for (;;) {
    static char script[65536];
    char c;
    size_t want = 0;
    // What the holder says when nobody is there: 13 bytes that begin with 0x7f.
    while (read(0, &c, 1) == 1 && c != '\n') {
      if (c != 0x7f) { want = want * 10 + (c - '0'); continue; }
      for (int i = 0; i < 12; ++i) if (read(0, &c, 1) != 1) return 6;
    }
    if (want == 0 || want >= sizeof script) return 4;
    for (size_t n = 0; n < want;) {
      ssize_t r = read(0, script + n, want - n);
      if (r <= 0) return 5;
      n += r;
    }
    script[want] = 0;
    if (!strncmp(script, "agent-exit ", 11)) return atoi(script + 11);
    pid_t pid = fork();
    if (pid == 0) {
      dup2(0, 1); dup2(0, 2);
      char* args[] = {"sh", "-c", script, 0};
      char* env[] = {"PATH=/bin", 0};
      execve("/bin/sh", args, env);
      _exit(98);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    dprintf(0, "exit:%d\n", WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    while (waitpid(-1, 0, WNOHANG) > 0) {}
  }
}
)c";

}  // namespace sandbar::spawner
