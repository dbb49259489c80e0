// For guests on gVisor, whose kernel lacks three things. Every program of the image loads this (/etc/ld.so.preload,
// below the image's layers). No library is linked: it must load beside any libc.
//
// Some versions do not know AT_NO_AUTOMOUNT and answer EINVAL, which ends `ls` and `stat` of current distributions:
// the same calls are made without that flag, which means nothing in a machine without automounts.
//
// close_range up to the largest number is refused, and PAM then closes 65,536 descriptors one by one, for a second.
//
// Setuid bits do not count. A sudo that was started without root becomes a client of the agent (elevate_client.h), and
// the agent runs the same file as root, with the caller as its first argument. A kernel would have set the real user;
// here the program does it to itself, before its own code runs. Where this is not loaded, that argument is one that
// sudo refuses. Linked to be initialized before all other libraries.
#define _GNU_SOURCE
#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/syscall.h>

extern int* __errno_location(void);

static const char kCaller[] = "--sandbar-caller=";  // elevated.h
static const char kSudo[] = "/usr/bin/sudo";
static const char kClient[] = "/tmp/.sandbar/agent";
static const char kWord[] = "sandbar-elevate";       // elevate_client.h
static const char kSocket[] = "/dev/.sandbar-sudo";  // launch_gvisor.cc

static long Raw(long number, long a, long b, long c, long d, long e) {
  register long r10 __asm__("r10") = d;
  register long r8 __asm__("r8") = e;
  long result;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8)
                   : "rcx", "r11", "memory");
  return result;
}

static long Call(long number, long a, long b, long c, long d, long e) {
  long result = Raw(number, a, b, c, d, e);
  if (result >= 0) return result;
  *__errno_location() = (int)-result;
  return -1;
}

int statx(int dir, const char* restrict path, int flags, unsigned mask, struct statx* restrict out) {
  return (int)Call(SYS_statx, dir, (long)path, flags & ~AT_NO_AUTOMOUNT, mask, (long)out);
}

int fstatat(int dir, const char* restrict path, struct stat* restrict out, int flags) {
  return (int)Call(SYS_newfstatat, dir, (long)path, (long)out, flags & ~AT_NO_AUTOMOUNT, 0);
}

int fstatat64(int dir, const char* restrict path, struct stat64* restrict out, int flags) {
  return (int)Call(SYS_newfstatat, dir, (long)path, (long)out, flags & ~AT_NO_AUTOMOUNT, 0);
}

int close_range(unsigned first, unsigned last, int flags) {
  return (int)Call(SYS_close_range, first, last > INT_MAX ? INT_MAX : last, flags, 0, 0);
}

// libc made up its mind before TakeCaller.
char* secure_getenv(const char* name) {
  return getauxval(AT_SECURE) != 0 ? 0 : getenv(name);
}

// What is left of `text` after `prefix`, or nothing.
static const char* After(const char* text, const char* prefix) {
  while (*prefix != 0) {
    if (*text++ != *prefix++) return 0;
  }
  return text;
}

static int Same(const char* a, const char* b) {
  const char* rest = After(a, b);
  return rest != 0 && *rest == 0;
}

static Elf64_auxv_t* Auxiliary(char** env, unsigned long type) {
  while (*env != 0) ++env;
  Elf64_auxv_t* at = (Elf64_auxv_t*)(env + 1);
  for (; at->a_type != AT_NULL; ++at) {
    if (at->a_type == type) return at;
  }
  return 0;
}

static int TakeCaller(char** argv, char** env, const char* number) {
  struct stat st;
  if (Raw(SYS_newfstatat, AT_FDCWD, (long)"/proc/self/exe", (long)&st, 0, 0) != 0) return 0;
  if (st.st_uid != 0 || (st.st_mode & S_ISUID) == 0 || Raw(SYS_getuid, 0, 0, 0, 0, 0) != 0) return 0;
  long uid = 0;
  for (; *number >= '0' && *number <= '9' && uid <= 0xffffffffL; ++number) uid = uid * 10 + (*number - '0');
  if (*number != 0 || uid >= 0xffffffffL || Raw(SYS_setresuid, uid, 0, 0, 0, 0) != 0) return 0;
  Elf64_auxv_t* secure = Auxiliary(env, AT_SECURE);
  if (secure != 0) secure->a_un.a_val = 1;
  // The argument goes: the number of arguments is what the program's start reads from below the list.
  for (char** at = argv + 1; *at != 0; ++at) at[0] = at[1];
  --*(long*)(argv - 1);
  return 1;
}

static void AskAgent(int argc, char** argv, char** env) {
  char file[sizeof kSudo];
  if (Raw(SYS_geteuid, 0, 0, 0, 0, 0) == 0) return;
  if (Raw(SYS_readlink, (long)"/proc/self/exe", (long)file, sizeof file, 0, 0) != sizeof kSudo - 1) return;
  file[sizeof kSudo - 1] = 0;
  if (!Same(file, kSudo)) return;
  const char* words[argc + 3];
  words[0] = kWord;
  words[1] = kSocket;
  for (int i = 0; i <= argc; ++i) words[i + 2] = argv[i];
  Raw(SYS_execve, (long)kClient, (long)words, (long)env, 0, 0);
}

__attribute__((constructor)) static void Start(int argc, char** argv, char** env) {
  const char* caller = argc > 1 ? After(argv[1], kCaller) : 0;
  if (caller != 0 && TakeCaller(argv, env, caller)) return;
  // Most programs are told from sudo without a system call.
  Elf64_auxv_t* file = Auxiliary(env, AT_EXECFN);
  if (argc < 1 || file == 0) return;
  const char* name = (const char*)file->a_un.a_val;
  for (const char* at = name; *at != 0; ++at) {
    if (*at == '/') name = at + 1;
  }
  if (Same(name, "sudo") || Same(name, "sudoedit")) AskAgent(argc, argv, env);
}
