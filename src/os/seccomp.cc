#include "os/seccomp.h"

#include <fcntl.h>
#include <linux/keyctl.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "os/seccomp_program.h"

namespace sandbar::os {
namespace {

// Newer than the build machine's headers.
constexpr int kFchmodat2 = 452, kFutexWake = 454, kFutexWait = 455, kFutexRequeue = 456, kMseal = 462,
              kSetxattrat = 463, kGetxattrat = 464, kListxattrat = 465, kRemovexattrat = 466, kOpenTreeAttr = 467;

// What programs of today use: shells, package managers, compilers, node, python, go, rust, the JVM, browsers.
// clang-format off
constexpr int kAllowed[] = {
    // files and directories
    SYS_read, SYS_write, SYS_open, SYS_close, SYS_stat, SYS_fstat, SYS_lstat, SYS_lseek, SYS_pread64, SYS_pwrite64,
    SYS_readv, SYS_writev, SYS_preadv, SYS_pwritev, SYS_preadv2, SYS_pwritev2, SYS_access, SYS_faccessat,
    SYS_faccessat2, SYS_pipe, SYS_pipe2, SYS_dup, SYS_dup2, SYS_dup3, SYS_sendfile, SYS_fcntl, SYS_flock, SYS_fsync,
    SYS_fdatasync, SYS_sync_file_range, SYS_truncate, SYS_ftruncate, SYS_fallocate,
    SYS_readahead, SYS_getdents, SYS_getdents64, SYS_getcwd, SYS_chdir, SYS_fchdir, SYS_rename,
    SYS_renameat, SYS_renameat2, SYS_mkdir, SYS_mkdirat, SYS_rmdir, SYS_creat, SYS_link, SYS_linkat, SYS_unlink,
    SYS_unlinkat, SYS_symlink, SYS_symlinkat, SYS_readlink, SYS_readlinkat, SYS_chmod, SYS_fchmod, SYS_fchmodat,
    kFchmodat2, SYS_chown, SYS_fchown, SYS_lchown, SYS_fchownat, SYS_umask, SYS_utime, SYS_utimes, SYS_futimesat,
    SYS_utimensat, SYS_mknod, SYS_mknodat, SYS_statfs, SYS_fstatfs, SYS_openat, SYS_openat2, SYS_newfstatat,
    SYS_statx, SYS_splice, SYS_tee, SYS_close_range, SYS_chroot, SYS_setxattr, SYS_lsetxattr,
    SYS_fsetxattr, SYS_getxattr, SYS_lgetxattr, SYS_fgetxattr, SYS_listxattr, SYS_llistxattr, SYS_flistxattr,
    SYS_removexattr, SYS_lremovexattr, SYS_fremovexattr, kSetxattrat, kGetxattrat, kListxattrat, kRemovexattrat,
    SYS_inotify_init, SYS_inotify_init1, SYS_inotify_add_watch, SYS_inotify_rm_watch,
    // waiting and timers
    SYS_poll, SYS_ppoll, SYS_select, SYS_pselect6, SYS_epoll_create, SYS_epoll_create1, SYS_epoll_ctl,
    SYS_epoll_wait, SYS_epoll_pwait, SYS_epoll_pwait2, SYS_eventfd, SYS_eventfd2, SYS_signalfd, SYS_signalfd4,
    SYS_timerfd_create, SYS_timerfd_settime, SYS_timerfd_gettime, SYS_timer_create, SYS_timer_settime,
    SYS_timer_gettime, SYS_timer_getoverrun, SYS_timer_delete, SYS_nanosleep, SYS_clock_nanosleep,
    SYS_clock_gettime, SYS_clock_getres, SYS_gettimeofday, SYS_time, SYS_times, SYS_alarm, SYS_getitimer,
    SYS_setitimer, SYS_pause,
    // memory
    SYS_mmap, SYS_mprotect, SYS_munmap, SYS_brk, SYS_mremap, SYS_msync, SYS_mlock,
    SYS_mlock2, SYS_munlock, SYS_mlockall, SYS_munlockall, SYS_memfd_create, SYS_membarrier, SYS_pkey_mprotect,
    SYS_pkey_alloc, SYS_pkey_free, kMseal, SYS_shmget, SYS_shmat, SYS_shmctl, SYS_shmdt, SYS_semget, SYS_semop,
    SYS_semctl, SYS_semtimedop, SYS_msgget, SYS_msgsnd, SYS_msgrcv, SYS_msgctl, SYS_mq_open, SYS_mq_unlink,
    SYS_mq_timedsend, SYS_mq_timedreceive, SYS_mq_notify, SYS_mq_getsetattr,
    // processes, threads, signals
    SYS_fork, SYS_vfork, SYS_execve, SYS_execveat, SYS_exit, SYS_exit_group, SYS_wait4, SYS_waitid, SYS_kill,
    SYS_tkill, SYS_tgkill, SYS_pidfd_open, SYS_pidfd_send_signal, SYS_getpid, SYS_getppid, SYS_gettid, SYS_getpgrp,
    SYS_getpgid, SYS_setpgid, SYS_getsid, SYS_setsid, SYS_set_tid_address, SYS_set_robust_list, SYS_get_robust_list,
    SYS_futex, SYS_futex_waitv, kFutexWake, kFutexWait, kFutexRequeue, SYS_rseq, SYS_restart_syscall,
    SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_rt_sigpending, SYS_rt_sigtimedwait,
    SYS_rt_sigqueueinfo, SYS_rt_tgsigqueueinfo, SYS_rt_sigsuspend, SYS_sigaltstack, SYS_sched_yield,
    SYS_sched_setparam, SYS_sched_getparam, SYS_sched_setscheduler, SYS_sched_getscheduler,
    SYS_sched_get_priority_max, SYS_sched_get_priority_min, SYS_sched_rr_get_interval, SYS_sched_setaffinity,
    SYS_sched_getaffinity, SYS_sched_setattr, SYS_sched_getattr, SYS_getpriority, SYS_setpriority, SYS_ioprio_set,
    SYS_ioprio_get, SYS_getcpu, SYS_prctl, SYS_arch_prctl,
    // Debuggers. The agent cannot be traced: its memory is the host's, and no program here gets CAP_SYS_PTRACE.
    SYS_ptrace,
    // identity, limits, system facts
    SYS_getuid, SYS_getgid, SYS_geteuid, SYS_getegid, SYS_setuid, SYS_setgid, SYS_setreuid, SYS_setregid,
    SYS_getgroups, SYS_setgroups, SYS_setresuid, SYS_getresuid, SYS_setresgid, SYS_getresgid, SYS_setfsuid,
    SYS_setfsgid, SYS_capget, SYS_capset, SYS_getrlimit, SYS_setrlimit, SYS_prlimit64, SYS_getrusage, SYS_uname,
    SYS_sysinfo, SYS_getrandom, SYS_seccomp, SYS_landlock_create_ruleset, SYS_landlock_add_rule,
    SYS_landlock_restrict_self,
    // sockets; socket, socketpair, setsockopt and send* have rules below
    SYS_connect, SYS_accept, SYS_accept4, SYS_bind, SYS_listen, SYS_recvfrom, SYS_recvmsg, SYS_recvmmsg,
    SYS_shutdown, SYS_getsockname, SYS_getpeername, SYS_getsockopt,
};
// clang-format on

// Administration of the host: programs that try it expect "not permitted", and say so to their user.
// clang-format off
constexpr int kNotPermitted[] = {
    SYS_bpf, SYS_perf_event_open, SYS_reboot, SYS_swapon, SYS_swapoff, SYS_init_module, SYS_finit_module,
    SYS_delete_module, SYS_kexec_load, SYS_kexec_file_load, SYS_settimeofday, SYS_clock_settime, SYS_clock_adjtime,
    SYS_adjtimex, SYS_syslog, SYS_acct, SYS_quotactl, SYS_quotactl_fd, SYS_iopl, SYS_ioperm, SYS_vhangup,
    SYS_open_by_handle_at,
};
// The same, but container runtimes live on it: the kernel allows it in namespaces of the machine's own.
constexpr int kForContainers[] = {
    SYS_mount, SYS_umount2, SYS_pivot_root, SYS_fsopen, SYS_fsconfig, SYS_fsmount, SYS_fspick, SYS_move_mount,
    SYS_open_tree, SYS_mount_setattr, kOpenTreeAttr, SYS_unshare, SYS_setns, SYS_sethostname, SYS_setdomainname,
};
// clang-format on

constexpr uint32_t kMadvisePageout = 21;
constexpr uint32_t kNewNamespace =
    CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET;

ArgCheck Is(uint8_t arg, uint32_t value, uint32_t mask = 0xffffffff) {
  return {.arg = arg, .op = ArgCheck::kEqual, .value = value, .mask = mask};
}
ArgCheck HasAny(uint8_t arg, uint32_t bits) {
  return {.arg = arg, .op = ArgCheck::kAnyBit, .value = bits};
}

// Other families load code that is rarely exercised, or leave the machine (AF_VSOCK is not namespaced).
SyscallEntry SocketEntry(bool nesting) {
  auto domain = [](uint32_t d) { return Is(0, d); };
  auto type = [](uint32_t t) { return Is(1, t, ~static_cast<uint32_t>(SOCK_CLOEXEC | SOCK_NONBLOCK)); };
  auto protocol = [](uint32_t p) { return Is(2, p); };
  SyscallEntry out{SYS_socket, Errno(EAFNOSUPPORT), {}};
  auto add = [&out](std::vector<ArgCheck> checks, SyscallAction action) {
    out.rules.push_back({std::move(checks), action});
  };
  add({domain(AF_UNIX)}, kAllow);
  for (uint32_t family : {AF_INET, AF_INET6}) {
    const uint32_t ping = family == AF_INET ? uint32_t{IPPROTO_ICMP} : uint32_t{IPPROTO_ICMPV6};
    for (uint32_t p : {0u, uint32_t{IPPROTO_TCP}}) add({domain(family), type(SOCK_STREAM), protocol(p)}, kAllow);
    for (uint32_t p : {0u, uint32_t{IPPROTO_UDP}, ping}) add({domain(family), type(SOCK_DGRAM), protocol(p)}, kAllow);
    add({domain(family), type(SOCK_RAW)}, Errno(EPERM));
    add({domain(family)}, Errno(EPROTONOSUPPORT));
  }
  for (uint32_t t : {SOCK_RAW, SOCK_DGRAM}) {
    add({domain(AF_NETLINK), type(t), protocol(NETLINK_ROUTE)}, kAllow);
    if (nesting) add({domain(AF_NETLINK), type(t), protocol(NETLINK_NETFILTER)}, kAllow);
  }
  add({domain(AF_NETLINK)}, Errno(EPROTONOSUPPORT));
  return out;
}

SyscallEntry IoctlEntry() {
  SyscallEntry out{SYS_ioctl, kAllow, {}};
  // Typing into somebody else's terminal, console selections, console redirection, line disciplines.
  for (uint32_t request : {TIOCSTI, TIOCLINUX, TIOCCONS, TIOCSETD})
    out.rules.push_back({{Is(1, request)}, Errno(EPERM)});
  for (ArgRule& rule : StoreRules()) out.rules.push_back(std::move(rule));
  return out;
}

std::vector<SyscallEntry> EntriesWithRules(bool nesting) {
  const SyscallAction no_oob = Errno(EOPNOTSUPP);
  const ArgCheck xtables{.arg = 2, .op = ArgCheck::kAtLeast, .value = 64};
  std::vector<SyscallEntry> entries = {
      SocketEntry(nesting),
      IoctlEntry(),
      {SYS_socketpair, Errno(EAFNOSUPPORT), {{{Is(0, AF_UNIX)}, kAllow}}},
      // clone3 is ENOSYS like everything unknown: its flags lie in memory; C libraries then use clone.
      // syncfs and copy_file_range are ENOSYS too. The one would write out what all machines have in memory, because
      // they share a filesystem; nobody is told that it was done when it was not. The other shares blocks between files
      // (StoreRules says why not); programs then read and write.
      // It would flush every filesystem of the host. Nothing here outlives the machine without being synced by name.
      {SYS_sync, Errno(0), {}},
      // The page cache of image layers is shared by all machines. Root of a machine could ask what of it is in memory
      // (mincore, which is ENOSYS like everything unknown) and throw it out: a way to watch and to signal others.
      {SYS_fadvise64, kAllow, {{{Is(3, POSIX_FADV_DONTNEED)}, Errno(0)}}},
      {SYS_madvise, kAllow, {{{Is(2, kMadvisePageout)}, Errno(EINVAL)}}},
      // Only "plain Linux" and the query: the other values switch protections off.
      {SYS_personality, Errno(EPERM), {{{Is(0, 0)}, kAllow}, {{Is(0, 0xffffffff)}, kAllow}}},
      // Urgent data of unix sockets and pushing a protocol onto a TCP socket: small features with a long list of holes.
      {SYS_sendto, kAllow, {{{HasAny(3, MSG_OOB)}, no_oob}}},
      {SYS_sendmsg, kAllow, {{{HasAny(2, MSG_OOB)}, no_oob}}},
      {SYS_sendmmsg, kAllow, {{{HasAny(3, MSG_OOB)}, no_oob}}},
      {SYS_setsockopt,
       kAllow,
       {{{Is(1, IPPROTO_TCP), Is(2, TCP_ULP)}, Errno(ENOPROTOOPT)},
        {{Is(1, IPPROTO_IP), xtables}, Errno(EPERM)},
        // The same of IPv6, where higher numbers are options that programs use.
        {{Is(1, IPPROTO_IPV6), Is(2, 64)}, Errno(EPERM)},
        {{Is(1, IPPROTO_IPV6), Is(2, 65)}, Errno(EPERM)}}},
  };
  SyscallEntry clone{SYS_clone, kAllow, {}};
  if (!nesting) clone.rules.push_back({{HasAny(0, kNewNamespace)}, Errno(EPERM)});
  entries.push_back(std::move(clone));
  // A runtime gives each container a session keyring of its own, and looks whether it may.
  SyscallEntry keys{SYS_keyctl, Errno(EPERM), {}};
  for (uint32_t op : {KEYCTL_JOIN_SESSION_KEYRING, KEYCTL_SETPERM, KEYCTL_DESCRIBE})
    keys.rules.push_back({{Is(0, op)}, kAllow});
  if (nesting) entries.push_back(std::move(keys));
  return entries;
}

Result<std::vector<sock_filter>> Build(bool nesting) {
  std::vector<SyscallEntry> entries = EntriesWithRules(nesting);
  for (int number : kAllowed) entries.push_back({number, kAllow, {}});
  for (int number : kNotPermitted) entries.push_back({number, Errno(EPERM), {}});
  for (int number : kForContainers) entries.push_back({number, nesting ? kAllow : Errno(EPERM), {}});
  return AssembleFilter(std::move(entries), Errno(ENOSYS));
}

}  // namespace

Result<std::vector<sock_filter>> BuildGuestFilter() {
  return Build(false);
}

Result<std::vector<sock_filter>> BuildNestingFilter() {
  return Build(true);
}

}  // namespace sandbar::os
