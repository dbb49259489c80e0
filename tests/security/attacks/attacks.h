// Attacks that run inside a machine. Each is a function that returns PASS when the attack failed as it should, or FAIL
// with a reason. One static program holds them all, so that a test uploads a single file:
//
//   attacks list                         names, one per line
//   attacks all|<group>|<group.name>     runs; prints "PASS name" or "FAIL name: why" per attack; exit 1 after any FAIL
//   attacks --as UID …                  first becomes that user (given root)
//   attacks bomb-fork|bomb-memory|fill-disk DIR|flood BYTES|plant-setuid PATH    see bombs.c
//
// Facts about the host come by environment: ATTACK_CANARY (a secret that lies in files, variables and command lines of
// the host), ATTACK_HOST_PATHS (colon-separated host paths with the canary), ATTACK_HOST_SERVICES (comma-separated
// ip:port that answer with the canary), ATTACK_HOST_PIDS, ATTACK_ABSTRACT (a host's abstract unix socket name).
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

enum { PASS = 0, FAIL = 1, SKIP = 2 };

struct attack {
  const char* name;
  int (*run)(void);
};

struct attack_group {
  const char* name;
  const struct attack* attacks;
  size_t count;
};

#define GROUP(group, list) const struct attack_group group##_group = {#group, list, sizeof(list) / sizeof((list)[0])}

// Records why and returns FAIL.
int fail(const char* format, ...) __attribute__((format(printf, 1, 2)));
int skip(const char* why);

// FAIL when a call that must not work returned >= 0; else PASS.
int must_fail(long result, const char* what);
// The same, and errno must be one of the two.
int must_fail_with(long result, const char* what, int want, int or_want);

bool is_root(void);
const char* canary(void);  // NULL when not given
// Reads up to size - 1 bytes and terminates them; -1 on error.
long slurp(const char* path, char* out, size_t size);

extern const struct attack_group namespaces_group, mounts_group, devices_group, procfs_group, agent_group,
    syscalls_group, sockets_group, inherited_group, host_group, files_group;

int run_bomb(int argc, char** argv);  // -1: not a bomb's name
