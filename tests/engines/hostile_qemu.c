// What stands in QEMU's place when a guest has taken it over: it has all that QEMU has and uses it against the host.
// The number of processors chooses what it does (see main); what it got hold of is said on stderr, which the spawner logs.
// Descriptors: 3 image, 4 disk, 5 the agent's listener, 6 configuration, 7 tap, and of a template 8 memory, 9 state,
// 10 control (src/spawner/machines/microvm.h).
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <linux/io_uring.h>
#include <net/if.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

static int tried, got;
static char loot[400];

static void Attempt(const char* what, int worked) {
  ++tried;
  if (!worked) return;
  ++got;
  strncat(loot, " ", sizeof loot - strlen(loot) - 1);
  strncat(loot, what, sizeof loot - strlen(loot) - 1);
}

static int Opens(const char* path, int flags) {
  int fd = open(path, flags | O_CLOEXEC, 0600);
  if (fd >= 0) close(fd);
  return fd >= 0;
}

static void HostFiles(void) {
  Attempt("passwd", Opens("/etc/passwd", O_RDONLY));
  Attempt("above-root", Opens("/../../../etc/shadow", O_RDONLY));
  Attempt("proc-root", Opens("/proc/1/root/etc/passwd", O_RDONLY));
  Attempt("proc-cwd", Opens("/proc/self/cwd/etc/passwd", O_RDONLY));
  Attempt("run", Opens("/run", O_RDONLY | O_DIRECTORY));
  Attempt("sysctl", Opens("/proc/sys/kernel/core_pattern", O_RDONLY));
  Attempt("mem", Opens("/dev/mem", O_RDONLY) || Opens("/dev/kvm", O_RDWR) || Opens("/dev/net/tun", O_RDWR));
  Attempt("new-file", Opens("/file", O_CREAT | O_RDWR) || Opens("/tmp/file", O_CREAT | O_RDWR) ||
                          Opens("/vm/file", O_CREAT | O_RDWR) || Opens("/dev/file", O_CREAT | O_RDWR));
  Attempt("unnamed-file", Opens("/", O_TMPFILE | O_RDWR));
  Attempt("kernel", Opens("/vm/kernel", O_RDWR) || unlink("/vm/kernel") == 0 || rename("/vm", "/mv") == 0);
  Attempt("libraries", Opens("/usr/lib/x86_64-linux-gnu/libc.so.6", O_WRONLY));
  struct file_handle handle = {0};
  int mount_id = 0;
  Attempt("handle", name_to_handle_at(AT_FDCWD, "/vm/kernel", &handle, &mount_id, 0) == 0 || errno == EOVERFLOW);
}

static void OwnDescriptors(void) {
  int others = 0;
  for (int fd = 11; fd < 4096; ++fd) others += fcntl(fd, F_GETFD) >= 0;
  Attempt("inherited-descriptor", others > 0);
  char block[512] = "mine";
  Attempt("image", pwrite(3, block, sizeof block, 0) > 0 || Opens("/proc/self/fd/3", O_RDWR));
  struct stat disk = {0};
  fstat(4, &disk);
  Attempt("longer-disk", ftruncate(4, disk.st_size + (1 << 20)) == 0 || pwrite(4, block, sizeof block, disk.st_size) > 0);
  Attempt("nodes", fchmod(4, 04777) == 0 && fchown(4, 0, 0) == 0);
  int space = ioctl(7, TUNGETDEVNETNS, 0);
  Attempt("tap-namespace", space >= 0);
  struct ifreq other = {0};
  other.ifr_flags = IFF_TAP | IFF_NO_PI;
  Attempt("other-device", ioctl(7, TUNSETIFF, &other) == 0);
  struct sockaddr_un where = {0};
  socklen_t length = sizeof where;
  getsockname(5, (struct sockaddr*)&where, &length);
  Attempt("socket-file", where.sun_path[0] == '/' && (unlink(where.sun_path) == 0 || chmod(where.sun_path, 0777) == 0));
}

// Memory and state of the template, which every other machine of this size starts from.
static void Template(void) {
  char before[16] = {0}, after[16] = {0};
  Attempt("no-template", pread(8, before, sizeof before, 0) != sizeof before || strcmp(before, "the template") != 0);
  Attempt("memory", pwrite(8, "mine", 4, 0) > 0 || ftruncate(8, 0) == 0 ||
                        fallocate(8, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) == 0);
  Attempt("memory-mapped", mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, 8, 0) != MAP_FAILED);
  char* page = mmap(NULL, 4096, PROT_READ, MAP_SHARED, 8, 0);
  Attempt("memory-protection", page != MAP_FAILED && mprotect(page, 4096, PROT_READ | PROT_WRITE) == 0);
  Attempt("memory-by-name", Opens("/proc/self/fd/8", O_RDWR | O_TRUNC));
  Attempt("seals", fcntl(8, F_ADD_SEALS, F_SEAL_WRITE) == 0);
  Attempt("state", pwrite(9, "mine", 4, 0) > 0 || ftruncate(9, 0) == 0);
  Attempt("changed", pread(8, after, sizeof after, 0) != sizeof after || memcmp(before, after, sizeof after) != 0);
}

static void Neighbours(void) {
  DIR* proc = opendir("/proc");
  int others = 0;
  for (struct dirent* e; proc && (e = readdir(proc));) others += atoi(e->d_name) > 1;
  Attempt("pids", others > 0);
  int killed = 0;
  for (int pid = 2; pid < 40000; ++pid) killed += kill(pid, SIGKILL) == 0;
  Attempt("kill", killed > 0);
  Attempt("ptrace", ptrace(PTRACE_ATTACH, 2, 0, 0) == 0);
  struct iovec part = {loot, 1};
  Attempt("other-memory", process_vm_readv(1, &part, 1, &part, 1, 0) > 0);
  Attempt("fork", fork() >= 0 || syscall(SYS_vfork) >= 0);
  Attempt("root", setuid(0) == 0 || setgid(0) == 0 || setresuid(0, 0, 0) == 0);
  Attempt("namespace", unshare(CLONE_NEWUSER) == 0 || unshare(CLONE_NEWNS) == 0);
  Attempt("mount", mount("x", "/", "tmpfs", 0, "") == 0 || umount2("/proc", MNT_DETACH) == 0 || chroot("/vm") == 0);
  struct io_uring_params ring = {0};
  Attempt("ring", syscall(SYS_io_uring_setup, 4, &ring) >= 0);
  Attempt("bpf", syscall(SYS_bpf, 0, NULL, 0) >= 0 || errno != EPERM);
  struct rlimit more = {RLIM_INFINITY, RLIM_INFINITY};
  Attempt("limits", setrlimit(RLIMIT_FSIZE, &more) == 0);
}

static void Network(void) {
  Attempt("internet-socket", socket(AF_INET, SOCK_STREAM, 0) >= 0 || socket(AF_INET6, SOCK_DGRAM, 0) >= 0);
  Attempt("raw-socket", socket(AF_PACKET, SOCK_RAW, 0) >= 0 || socket(AF_NETLINK, SOCK_RAW, 0) >= 0);
  Attempt("vsock", socket(AF_VSOCK, SOCK_STREAM, 0) >= 0);
  struct sockaddr_un to = {.sun_family = AF_UNIX};
  strcpy(to.sun_path, "/run/docker.sock");
  int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  Attempt("connect", connect(fd, (struct sockaddr*)&to, sizeof to) == 0 || errno != EPERM);
  Attempt("bind", bind(fd, (struct sockaddr*)&to, sizeof to) == 0);
}

static int Daemon(void) {
  for (;;) {
    int fd = accept(5, NULL, NULL);
    if (fd >= 0) return fd;
  }
}

static void Exactly(int fd, void* to, size_t n) {
  for (size_t have = 0; have < n;) {
    ssize_t r = read(fd, (char*)to + have, n - have);
    if (r <= 0) exit(9);
    have += (size_t)r;
  }
}

// The number that the daemon's hello carries: magic (8), length (4), type (1), version (4), nonce (8).
static uint64_t Greeting(int fd) {
  // As an agent of version 1: everything before the magic is skipped.
  const char magic[] = "\x7f" "SANDBAR";
  unsigned char hello[17], c;
  uint64_t nonce;
  for (size_t matched = 0; matched < 8;) {
    Exactly(fd, &c, 1);
    matched = c == (unsigned char)magic[matched] ? matched + 1 : c == 0x7f;
  }
  Exactly(fd, hello, sizeof hello);
  memcpy(&nonce, hello + 9, sizeof nonce);
  return nonce;
}

// On a stream a 0x7f is followed by a zero: the daemon's numbers have none, and a key is letters and digits.
static void Answer(int fd, uint64_t nonce, const char* key, const char* magic) {
  unsigned char out[200];
  memcpy(out, magic, 8);
  uint32_t version = 1, none = 0, size = (uint32_t)strlen(key);
  size_t n = 12;
  out[n++] = 65;
  memcpy(out + n, &version, 4), n += 4;
  memcpy(out + n, &nonce, 8), n += 8;
  memcpy(out + n, &none, 4), n += 4;
  if (size > 0) {
    memcpy(out + n, &size, 4), n += 4;
    memcpy(out + n, key, size), n += size;
  }
  uint32_t length = (uint32_t)(n - 12);
  memcpy(out + 8, &length, 4);
  if (write(fd, out, n) != (ssize_t)n) exit(9);
}

// Until the create has been answered: then the daemon has nothing more to say for a while. Its later words are not read.
static void Await(int fd) {
  struct timeval quiet = {2, 0};
  char skip[4096];
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &quiet, sizeof quiet);
  while (read(fd, skip, sizeof skip) > 0) {
  }
}

// Of the configuration: length, host name, clock (8), entropy, processes (4), key.
static void ReadKey(char* key) {
  uint32_t size = 0;
  char skip[4096];
  Exactly(6, &size, 4);
  for (int field = 0; field < 3; ++field) {
    Exactly(6, &size, 4);
    if (size >= sizeof skip) exit(9);
    Exactly(6, field == 2 ? key : skip, size);
    if (field == 2) key[size] = 0;
    if (field == 0) Exactly(6, skip, 8);
    if (field == 1) Exactly(6, skip, 4);
  }
}

static void Flood(int fd, const char* noise, size_t n) {
  while (write(fd, noise, n) > 0) {
  }
  for (;;) pause();
}

static void* Thread(void* unused) {
  for (;;) pause();
  return unused;
}

static void Hog(void) {
  pthread_t thread;
  while (pthread_create(&thread, NULL, Thread, NULL) == 0) {
  }
  for (;;) {
    char* piece = mmap(NULL, 16 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (piece == MAP_FAILED) pause();
    memset(piece, 1, 16 << 20);
  }
}

// As far as the maker of a template can tell, this is a machine that waits for its configuration.
static void BecomeTemplate(void) {
  char line[4096];
  if (pwrite(8, "the template\0\0\0", 16, 0) != 16) exit(9);
  dprintf(9, "{\"QMP\": {}}\n");
  for (size_t n = 0;;) {
    if (read(9, line + n, 1) != 1) exit(0);
    if (line[n] != '\n') {
      n = (n + 1) % (sizeof line - 1);
      continue;
    }
    line[n] = 0;
    n = 0;
    char* id = strstr(line, "\"id\":\"");
    if (id) dprintf(9, "{\"return\": {}, \"id\": \"%.*s\"}\n", (int)strcspn(id + 6, "\""), id + 6);
    if (strstr(line, "\"migrate\""))
      dprintf(9, "{\"event\": \"MIGRATION\", \"data\": {\"status\": \"completed\"}}\n");
    if (strstr(line, "qmp_capabilities"))
      dprintf(9, "{\"event\": \"VSERPORT_CHANGE\", \"data\": {\"open\": true, \"id\": \"config-port\"}}\n");
  }
}

int main(int argc, char** argv) {
  int mode = 0;
  for (int i = 1; i < argc; ++i) {
    if (strstr(argv[i], "-- probe")) return 1;
    if (strcmp(argv[i], "--version") == 0) return puts("QEMU emulator version 99") < 0;
    if (strstr(argv[i], "share=on")) BecomeTemplate();
    if (strcmp(argv[i], "-smp") == 0 && i + 1 < argc) mode = atoi(argv[i + 1]);
  }
  signal(SIGXFSZ, SIG_IGN);
  signal(SIGPIPE, SIG_IGN);
  static char noise[1 << 20];
  char key[4096] = "";
  switch (mode) {
    case 16: // everything that an intruder would try
      HostFiles(), OwnDescriptors(), Neighbours(), Network();
      for (int i = 1; i < argc; ++i)
        if (strstr(argv[i], "share=off")) Template();
      fprintf(stderr, "intruder: %d attempts, %d got somewhere:%s.\n", tried, got, loot);
      return 1;
    case 2: // says nothing
      for (;;) pause();
    case 4: // talks, but not to the point
      Flood(Daemon(), noise, sizeof noise);
    case 6: { // a frame that is longer than memory
      int fd = Daemon();
      Greeting(fd);
      Flood(fd, "\x7fSANDBAR\xff\xff\xff\xff\x41\x41\x41", 15);
    }
    case 8: { // any agent, but not this machine's
      int fd = Daemon();
      Answer(fd, Greeting(fd), "somebody else", "\x7fSANDBAR");
      for (;;) pause();
    }
    case 10: { // this machine's agent, until it is believed
      int fd = Daemon();
      ReadKey(key);
      Answer(fd, Greeting(fd), key, "\x7fSANDBAR");
      Flood(fd, "\x0d\0\0\0\x44nobody-knows-this-command", 26);
    }
    case 14: { // believed, on a stream: then an escape that is none
      int fd = Daemon();
      ReadKey(key);
      Answer(fd, Greeting(fd), key, "\x7fSANDBAS");
      Await(fd);
      if (write(fd, "\x7f garbage", 9) != 9) return 9;
      for (;;) pause();
    }
    case 20: { // believed: then the beginning of a frame
      int fd = Daemon();
      ReadKey(key);
      Answer(fd, Greeting(fd), key, "\x7fSANDBAR");
      Await(fd);
      if (write(fd, "\x40\0\0\0\x44", 5) != 5) return 9;
      for (;;) pause();
    }
    case 22: { // believed: then silent
      int fd = Daemon();
      ReadKey(key);
      Answer(fd, Greeting(fd), key, "\x7fSANDBAR");
      for (;;) pause();
    }
    case 1: // all the memory and threads there are (the smallest machine)
      Hog();
    case 12: // a very long word for the log
      for (size_t i = 0; i < sizeof noise; i += 16) memcpy(noise + i, "\x1b[2J\xff\xfe no end ", 14);
      for (int i = 0; i < 64; ++i) fwrite(noise, 1, sizeof noise, stderr);
      return 4;
    default: // gone at once
      return 3;
  }
}
