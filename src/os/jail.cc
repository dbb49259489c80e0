#include "os/jail.h"

#include <fcntl.h>
#include <linux/keyctl.h>
#include <linux/netlink.h>
#include <linux/sched.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <string>

#include "base/signals.h"
#include "os/process.h"
#include "os/seccomp.h"
#include "os/seccomp_program.h"

namespace sandbar::os {
namespace {

constexpr int kHighFd = 512;  // above anything that `keep` is moved to
constexpr size_t kMaxKeep = 32;
constexpr size_t kMaxText = 4096;

class Steps {
 public:
  explicit Steps(int status) : status_(status) {}
  void Must(const char* step, bool ok) const {
    if (ok) return;
    std::array<char, 256> text{};
    int n = std::snprintf(text.data(), text.size(), "cannot %s: %s", step, std::strerror(errno));
    [[maybe_unused]] ssize_t written =
        ::write(status_, text.data(), std::min(static_cast<size_t>(std::max(n, 0)), text.size() - 1));
    ::_exit(127);
  }
  void set_status(int fd) { status_ = fd; }
  int status() const { return status_; }

 private:
  int status_;
};

int NewProc(const Steps& s) {
  // The pid namespace is the mounter's, so this cannot be prepared by the parent.
  int context = ::fsopen("proc", FSOPEN_CLOEXEC);
  s.Must("mount /proc", context >= 0 && ::fsconfig(context, FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) == 0);
  int mount = ::fsmount(context, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
  s.Must("mount /proc", mount >= 0);
  return mount;
}

void EnterTree(const JailPlan& plan, const Steps& s) {
  auto attach = [&](int mount, int dir, const char* path) {
    s.Must(path, ::move_mount(mount, "", dir, path, MOVE_MOUNT_F_EMPTY_PATH) == 0);
  };
  attach(plan.root, AT_FDCWD, plan.mount_point);
  for (const JailMount& m : plan.mounts) attach(m.mount, plan.root, m.path);
  attach(NewProc(s), plan.root, "proc");
  attach(NewProc(s), plan.root, "visible");
  s.Must("enter the tree", ::fchdir(plan.root) == 0 && ::syscall(SYS_pivot_root, ".", ".") == 0);
  s.Must("leave the old tree", ::umount2(".", MNT_DETACH) == 0 && ::chdir("/") == 0);
  for (const ProcCover& c : plan.covers)
    s.Must("cover a file of /proc", ::mount(c.source.c_str(), c.target.c_str(), nullptr, MS_BIND, nullptr) == 0);
}

void SetLimit(const Steps& s, __rlimit_resource_t what, rlim_t value) {
  rlimit limit{};
  s.Must("set resource limits", ::getrlimit(what, &limit) == 0);
  limit.rlim_cur = limit.rlim_max = std::min(limit.rlim_max, value);
  s.Must("set resource limits", ::setrlimit(what, &limit) == 0);
}

// No exec follows that would close what is marked.
void ArrangeFds(const JailPlan& plan, Steps& s) {
  std::array<int, kMaxKeep> high{};
  for (size_t i = 0; i < plan.keep.size(); ++i) {
    high[i] = ::fcntl(plan.keep[i], F_DUPFD_CLOEXEC, kHighFd);
    s.Must("arrange file descriptors", high[i] >= 0);
  }
  int status = ::fcntl(s.status(), F_DUPFD_CLOEXEC, kHighFd);
  s.Must("arrange file descriptors", status >= 0);
  s.set_status(status);
  int next = 3;
  for (size_t i = 0; i < plan.keep.size(); ++i) {
    s.Must("arrange file descriptors", ::dup3(high[i], next++, O_CLOEXEC) >= 0);
  }
  s.Must("arrange file descriptors", ::dup3(status, next, O_CLOEXEC) >= 0);
  s.set_status(next++);
  s.Must("close file descriptors", ::syscall(SYS_close_range, next, ~0U, 0) == 0);
}

void BecomeMachine(const JailPlan& plan, const Steps& s) {
  s.Must("join the user namespace", ::setns(plan.userns, CLONE_NEWUSER) == 0);
  s.Must("take the machine's ids", ::syscall(SYS_setgroups, 0, nullptr) == 0 &&
                                       ::syscall(SYS_setresgid, 0, 0, 0) == 0 &&
                                       ::syscall(SYS_setresuid, 0, 0, 0) == 0);
  s.Must("make a session keyring", ::syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, nullptr) >= 0);
  s.Must("renounce privileges", ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
  // Changing ids cleared it; if the spawner dies, so do its machines.
  s.Must("tie its life to ours", ::prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
}

[[noreturn]] void RunJail(const JailPlan& plan, int status) {
  Steps s(status);
  ResetSignals();
  s.Must("start a session", ::setsid() >= 0);
  sched_param normal{};
  s.Must("set the priority", ::sched_setscheduler(0, SCHED_OTHER, &normal) == 0);
  s.Must("set the priority", ::setpriority(PRIO_PROCESS, 0, 0) == 0);
  for (int fd : plan.join) s.Must("join the control group", ::write(fd, "0", 1) == 1);
  s.Must("join the network namespace", ::setns(plan.netns, CLONE_NEWNET) == 0);
  s.Must("make the cgroup namespace", ::unshare(CLONE_NEWCGROUP) == 0);
  s.Must("set the host name", ::sethostname("sandbar", 7) == 0);
  if (plan.cpus != nullptr) s.Must("set the cpu affinity", ::sched_setaffinity(0, sizeof *plan.cpus, plan.cpus) == 0);
  int null = ::open("/dev/null", O_RDWR | O_NOCTTY | O_CLOEXEC);
  s.Must("open /dev/null", null >= 0);
  for (int fd = 0; fd < 3; ++fd) s.Must("open /dev/null", ::dup2(null, fd) == fd);
  EnterTree(plan, s);
  // Sandboxes go before services of the host when it runs out of memory.
  int oom = ::open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  s.Must("set the out-of-memory score", oom >= 0 && ::write(oom, "300", 3) == 3);
  SetLimit(s, RLIMIT_CORE, 1);
  SetLimit(s, RLIMIT_NOFILE, plan.open_files);
  ::umask(022);
  BecomeMachine(plan, s);
  ArrangeFds(plan, s);
  if (plan.filter != nullptr) s.Must("load the system call filter", LoadFilterRaw(plan.filter) == 0);
  plan.body(plan.argument, s.status());
  ::_exit(127);
}

}  // namespace

Result<std::vector<sock_filter>> BuildJailFilter() {
  // clang-format off
  constexpr int kRefused[] = {
      SYS_bpf, SYS_perf_event_open, SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register, SYS_keyctl,
      SYS_add_key, SYS_request_key, SYS_open_by_handle_at, SYS_init_module, SYS_finit_module, SYS_delete_module,
      SYS_kexec_load, SYS_kexec_file_load, SYS_reboot, SYS_swapon, SYS_swapoff, SYS_settimeofday, SYS_clock_settime,
      SYS_clock_adjtime, SYS_adjtimex, SYS_syslog, SYS_acct, SYS_quotactl, SYS_iopl, SYS_ioperm, SYS_fanotify_init,
      SYS_vhangup, SYS_userfaultfd, SYS_fsopen, SYS_fsconfig, SYS_fsmount, SYS_fspick, SYS_memfd_secret,
      SYS_mq_open, SYS_msgget, SYS_semget,
  };
  // clang-format on
  auto is = [](uint8_t arg, uint32_t value) { return ArgCheck{.arg = arg, .op = ArgCheck::kEqual, .value = value}; };
  auto any = [](uint8_t arg, uint32_t bits) { return ArgCheck{.arg = arg, .op = ArgCheck::kAnyBit, .value = bits}; };
  std::vector<SyscallEntry> entries;
  for (int number : kRefused) entries.push_back({number, Errno(EPERM), {}});
  // As for guests (os/seccomp.cc): no blocks that two files share, no flush of what others have written.
  for (int number : {SYS_copy_file_range, SYS_syncfs}) entries.push_back({number, Errno(ENOSYS), {}});
  entries.push_back({SYS_ioctl, kAllow, StoreRules()});
  // The link to the guest's network stack and what describes it; above all no netfilter.
  SyscallEntry socket{SYS_socket, Errno(EAFNOSUPPORT), {}};
  for (uint32_t family : {AF_UNIX, AF_INET, AF_INET6, AF_PACKET}) socket.rules.push_back({{is(0, family)}, kAllow});
  socket.rules.push_back({{is(0, AF_NETLINK), is(2, NETLINK_ROUTE)}, kAllow});
  entries.push_back(std::move(socket));
  const ArgCheck xtables{.arg = 2, .op = ArgCheck::kAtLeast, .value = 64};
  entries.push_back({SYS_setsockopt,
                     kAllow,
                     {{{is(1, IPPROTO_IP), xtables}, Errno(EPERM)}, {{is(1, IPPROTO_IPV6), xtables}, Errno(EPERM)}}});
  for (auto [number, arg] : {std::pair{SYS_sendto, 3}, {SYS_sendmsg, 2}, {SYS_sendmmsg, 3}})
    entries.push_back({number, kAllow, {{{any(static_cast<uint8_t>(arg), MSG_OOB)}, Errno(EOPNOTSUPP)}}});
  return AssembleFilter(std::move(entries), kAllow);
}

Result<Child> StartJail(const JailPlan& plan) {
  SB_CHECK(plan.keep.size() <= kMaxKeep);
  std::array<int, 2> pipe{};
  if (::pipe2(pipe.data(), O_CLOEXEC | O_NONBLOCK) != 0) return FailErrno("pipe");
  Fd read_end(pipe[0]), write_end(pipe[1]);
  int pidfd = -1;
  pid_t pid = Clone3Raw(CLONE_PIDFD | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS, &pidfd);
  if (pid < 0) return FailErrno("clone a machine");
  if (pid == 0) RunJail(plan, pipe[1]);
  return Child{pid, Fd(pidfd), std::move(read_end)};
}

Result<bool> ReadJailStatus(int status) {
  std::array<char, kMaxText> text{};
  ssize_t n = 0;
  do {
    n = ::read(status, text.data(), text.size());
  } while (n < 0 && errno == EINTR);
  if (n < 0 && errno == EAGAIN) return false;
  if (n < 0) return FailErrno("read the machine's status");
  if (n == 0) return true;
  return Fail(Code::kInternal, std::string(text.data(), static_cast<size_t>(n)));
}

}  // namespace sandbar::os
