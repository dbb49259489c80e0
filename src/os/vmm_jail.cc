#include "os/vmm_jail.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>

#include "base/files.h"
#include "base/signals.h"
#include "os/caps.h"
#include "os/openat.h"
#include "os/process.h"
#include "os/seccomp.h"
#include "os/seccomp_program.h"

namespace sandbar::os {
namespace {

constexpr int kHighFd = 512;
constexpr rlim_t kOpenFiles = 1024;

Result<> EnterRoot(const VmmPlan& plan) {
  if (::move_mount(plan.root, "", AT_FDCWD, plan.mount_point.c_str(), MOVE_MOUNT_F_EMPTY_PATH) != 0)
    return FailErrno("attach its root");
  if (::fchdir(plan.root) != 0 || ::syscall(SYS_pivot_root, ".", ".") != 0 || ::umount2(".", MNT_DETACH) != 0 ||
      ::chdir("/") != 0)
    return FailErrno("change the root");
  // Only itself is in there; it opens its own descriptors by name.
  if (::mount("proc", "/proc", "proc", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, "subset=pid") != 0)
    return FailErrno("mount /proc");
  return {};
}

Result<> SetLimits(const VmmPlan& plan) {
  const rlim_t file = plan.largest_file == 0 ? RLIM_INFINITY : plan.largest_file;
  for (auto [what, value] :
       {std::pair(RLIMIT_CORE, rlim_t{1}), std::pair(RLIMIT_NOFILE, kOpenFiles), std::pair(RLIMIT_FSIZE, file)}) {
    rlimit limit{};
    if (::getrlimit(what, &limit) != 0) return FailErrno("getrlimit");
    limit.rlim_max = std::min(limit.rlim_max, value);
    limit.rlim_cur = limit.rlim_max;
    if (::setrlimit(what, &limit) != 0) return FailErrno("setrlimit");
  }
  return {};
}

// What the program keeps becomes 3, 4, …; everything else closes when it starts.
Result<int> ArrangeFds(const VmmPlan& plan, int* status) {
  std::vector<int> high;
  for (int fd : plan.keep) high.push_back(::fcntl(fd, F_DUPFD_CLOEXEC, kHighFd));
  int program = ::fcntl(plan.program, F_DUPFD_CLOEXEC, kHighFd);
  *status = ::fcntl(*status, F_DUPFD_CLOEXEC, kHighFd);
  int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  if (program < 0 || *status < 0 || null < 0) return FailErrno("arrange file descriptors");
  int errors = plan.errors >= 0 ? ::fcntl(plan.errors, F_DUPFD_CLOEXEC, kHighFd) : null;
  for (int fd = 0; fd < 3; ++fd) ::dup2(fd > 0 ? errors : null, fd);
  int next = 3;
  for (int fd : high) {
    if (::dup2(fd, next++) < 0) return FailErrno("arrange file descriptors");
  }
  if (::syscall(SYS_close_range, next, ~0U, CLOSE_RANGE_CLOEXEC) != 0) return FailErrno("close_range");
  return program;
}

Result<> DropPrivileges(const VmmPlan& plan) {
  for (unsigned long c = 0; c < 64; ++c) {
    if ((plan.capabilities >> c & 1) == 0) (void)::prctl(PR_CAPBSET_DROP, c, 0, 0, 0);
  }
  if (::syscall(SYS_setgroups, 0, nullptr) != 0 || ::syscall(SYS_setresgid, plan.gid, plan.gid, plan.gid) != 0 ||
      ::syscall(SYS_setresuid, plan.uid, plan.uid, plan.uid) != 0)
    return FailErrno("take its own user id");
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return FailErrno("no_new_privs");
  // Changing ids cleared it; if the spawner dies, so do its machines.
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return FailErrno("pdeathsig");
  return {};
}

// Preparing may take long: it must not outlive its spawner, nor keep what is none of its business.
Result<> LetGoOfOthers(const VmmPlan& plan, int status) {
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return FailErrno("pdeathsig");
  std::vector<int> kept = {status, plan.root, plan.program};
  if (plan.errors >= 0) kept.push_back(plan.errors);
  for (int fd : plan.keep)
    if (fd >= 0) kept.push_back(fd);
  CloseAllBut(std::move(kept));
  return {};
}

Result<> Enter(VmmPlan& plan, int* status) {
  if (::setsid() < 0) return FailErrno("setsid");
  sched_param normal{};
  if (::sched_setscheduler(0, SCHED_OTHER, &normal) != 0 || ::setpriority(PRIO_PROCESS, 0, 0) != 0)
    return FailErrno("set the priority");
  for (int fd : plan.join) {
    if (::write(fd, "0", 1) != 1) return FailErrno("join the control group");
  }
  if (::unshare(CLONE_NEWCGROUP) != 0) return FailErrno("make the cgroup namespace");
  SB_TRYV(LetGoOfOthers(plan, *status));
  if (plan.prepare) SB_TRYV(plan.prepare(plan));
  if (plan.cpus != nullptr && ::sched_setaffinity(0, sizeof *plan.cpus, plan.cpus) != 0)
    return FailErrno("set the cpu affinity");
  SB_TRY(Fd oom, OpenPath("/proc/self/oom_score_adj", O_WRONLY));
  SB_TRYV(WriteAll(oom.get(), "300"));
  std::vector<char*> argv;
  for (std::string& word : plan.argv) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::vector<char*> env;
  for (std::string& word : plan.env) env.push_back(word.data());
  env.push_back(nullptr);
  plan.root = ::fcntl(plan.root, F_DUPFD_CLOEXEC, kHighFd);  // out of the way of what comes to 3, 4, …
  if (plan.root < 0) return FailErrno("arrange file descriptors");
  SB_TRY(int program, ArrangeFds(plan, status));
  SB_TRYV(EnterRoot(plan));
  SB_TRYV(SetLimits(plan));
  SB_TRYV(DropPrivileges(plan));
  if (int err = LoadFilterRaw(plan.filter); err != 0) return FailErrno("load the system call filter", -err);
  ::syscall(SYS_execveat, program, "", argv.data(), env.data(), AT_EMPTY_PATH);
  return FailErrno("start " + plan.argv.front());
}

}  // namespace

Result<Child> StartVmm(VmmPlan plan) {
  std::array<int, 2> pipe{};
  if (::pipe2(pipe.data(), O_CLOEXEC | O_NONBLOCK) != 0) return FailErrno("pipe");
  Fd read_end(pipe[0]), write_end(pipe[1]);
  int pidfd = -1;
  pid_t pid = Clone3Raw(CLONE_PIDFD | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWNET, &pidfd);
  if (pid < 0) return FailErrno("clone a machine");
  if (pid == 0) {
    ResetSignals();
    int status = pipe[1];
    auto failed = Enter(plan, &status);
    [[maybe_unused]] ssize_t n = ::write(status, failed.error().message.data(), failed.error().message.size());
    ::_exit(127);
  }
  return Child{pid, Fd(pidfd), std::move(read_end)};
}

Result<std::vector<sock_filter>> BuildVmmFilter() {
  // clang-format off
  constexpr int kRefused[] = {
      SYS_mount, SYS_umount2, SYS_pivot_root, SYS_chroot, SYS_fsopen, SYS_fsconfig, SYS_fsmount, SYS_fspick,
      SYS_move_mount, SYS_open_tree, SYS_mount_setattr, SYS_setns, SYS_unshare, SYS_ptrace, SYS_process_vm_readv,
      SYS_process_vm_writev, SYS_process_madvise, SYS_pidfd_getfd, SYS_pidfd_open, SYS_kcmp, SYS_bpf,
      SYS_perf_event_open, SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register, SYS_keyctl, SYS_add_key,
      SYS_request_key, SYS_open_by_handle_at, SYS_name_to_handle_at, SYS_init_module, SYS_finit_module,
      SYS_delete_module, SYS_kexec_load, SYS_kexec_file_load, SYS_reboot, SYS_swapon, SYS_swapoff,
      SYS_settimeofday, SYS_clock_settime, SYS_clock_adjtime, SYS_adjtimex, SYS_sethostname, SYS_setdomainname,
      SYS_syslog, SYS_acct, SYS_quotactl, SYS_iopl, SYS_ioperm, SYS_modify_ldt, SYS_mknod, SYS_mknodat,
      SYS_fanotify_init, SYS_personality, SYS_vhangup, SYS_move_pages, SYS_migrate_pages, SYS_userfaultfd,
      SYS_fork, SYS_vfork, SYS_connect, SYS_bind, SYS_io_setup, SYS_io_submit, SYS_memfd_secret, SYS_mq_open,
      SYS_msgget, SYS_semget, SYS_shmget,
  };
  // clang-format on
  std::vector<SyscallEntry> entries;
  for (int number : kRefused) entries.push_back({number, Errno(EPERM), {}});
  // As for guests (os/seccomp.cc): no blocks that two files share, no flush of what others have written.
  for (int number : {SYS_copy_file_range, SYS_syncfs}) entries.push_back({number, Errno(ENOSYS), {}});
  entries.push_back({SYS_ioctl, kAllow, StoreRules()});
  // Threads, no processes; clone3's flags lie in memory, out of a filter's reach.
  const ArgCheck thread{.arg = 0, .op = ArgCheck::kAnyBit, .value = CLONE_THREAD};
  entries.push_back({SYS_clone, Errno(EPERM), {{{thread}, kAllow}}});
  entries.push_back({SYS_clone3, Errno(ENOSYS), {}});
  // Only what is there: it accepts its daemon, it opens no other way.
  for (auto [number, arg] : {std::pair{SYS_sendto, 3}, {SYS_sendmsg, 2}, {SYS_sendmmsg, 3}}) {
    const ArgCheck urgent{.arg = static_cast<uint8_t>(arg), .op = ArgCheck::kAnyBit, .value = MSG_OOB};
    entries.push_back({number, kAllow, {{{urgent}, Errno(EOPNOTSUPP)}}});
  }
  const ArgCheck unix_socket{.arg = 0, .op = ArgCheck::kEqual, .value = AF_UNIX};
  entries.push_back({SYS_socket, Errno(EPERM), {{{unix_socket}, kAllow}}});
  return AssembleFilter(std::move(entries), kAllow);
}

}  // namespace sandbar::os
