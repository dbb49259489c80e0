#include "os/child.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/keyctl.h>
#include <linux/openat2.h>
#include <linux/sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "base/signals.h"
#include "os/caps.h"
#include "os/process.h"
#include "os/seccomp.h"

namespace sandbar::os {
namespace {

enum Step : uint32_t {
  kSession,
  kFds,
  kCgroup,
  kNetns,
  kCgroupNs,
  kHostname,
  kAffinity,
  kRoot,
  kProc,
  kProcMount,
  kProcCover,
  kProcReadOnly,
  kDev,
  kPts,
  kShm,
  kSys,
  kNesting,
  kGuestMount,
  kPivot,
  kDevNull,
  kOom,
  kLimits,
  kUserNs,
  kIds,
  kKeyring,
  kFilter,
  kCaps,
  kExec,
  kStepCount
};

constexpr std::array<const char*, kStepCount> kStepNames = {
    "start a session",
    "arrange file descriptors",
    "join the control group",
    "join the network namespace",
    "make the cgroup namespace",
    "set the host name",
    "set the cpu affinity",
    "attach the root filesystem",
    "find /proc, /dev and /sys in the image (each must be a directory)",
    "mount /proc",
    "cover a file of /proc",
    "make a part of /proc read-only",
    "mount /dev",
    "mount /dev/pts",
    "mount /dev/shm",
    "mount /sys",
    "prepare for containers",
    "mount a drive (its path must be a directory that is not below another mount)",
    "change the root",
    "open /dev/null",
    "set the out-of-memory score",
    "set resource limits",
    "join the user namespace",
    "take the machine's ids",
    "make a session keyring",
    "load the system call filter",
    "limit capabilities",
    "start the agent",
};

struct Report {
  uint32_t step = 0;
  int32_t err = 0;
};

constexpr int kHighFd = 512;  // above anything that `keep` is moved to
constexpr size_t kMaxKeep = 16;

// One step after the other; the first failure ends the process. Only async-signal-safe calls.
class Stepper {
 public:
  explicit Stepper(int status) : status_(status) {}

  [[noreturn]] void Die(Step step, int err) const {
    Report r{step, err};
    [[maybe_unused]] ssize_t n = ::write(status_, &r, sizeof r);
    ::_exit(127);
  }
  void Must(Step step, bool ok) const {
    if (!ok) Die(step, errno);
  }
  // For the functions that return a negative errno.
  void MustRaw(Step step, int rc) const {
    if (rc != 0) Die(step, -rc);
  }
  void set_status(int fd) { status_ = fd; }
  int status() const { return status_; }

 private:
  int status_;
};

int OpenDirInside(int root, const char* path) {
  open_how how{};
  how.flags = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
  how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV;
  return static_cast<int>(::syscall(SYS_openat2, root, path, &how, sizeof how));
}

// Moves a detached mount onto an opened directory.
bool AttachRaw(int mount, int dir) {
  return ::move_mount(mount, "", dir, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) == 0;
}

// What shows the mounter's own namespaces, so that it cannot be prepared by the parent.
int MountOwnRaw(const Stepper& s, Step step, const char* type) {
  int context = ::fsopen(type, FSOPEN_CLOEXEC);
  s.Must(step, context >= 0);
  s.Must(step, ::fsconfig(context, FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) == 0);
  int mount = ::fsmount(context, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
  s.Must(step, mount >= 0);
  return mount;
}

void CoverProc(const ChildPlan& plan, const Stepper& s, int proc) {
  int net = -1;
  if (plan.nesting != nullptr) {
    net = ::open_tree(proc, "sys/net", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    s.Must(kProcReadOnly, net >= 0);
  }
  for (const char* path : plan.read_only) {
    int copy = ::open_tree(proc, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    if (copy < 0 && errno == ENOENT) continue;  // not on this kernel
    s.Must(kProcReadOnly, copy >= 0);
    mount_attr attr{};
    attr.attr_set = MOUNT_ATTR_RDONLY;
    s.Must(kProcReadOnly, ::mount_setattr(copy, "", AT_EMPTY_PATH, &attr, sizeof attr) == 0);
    s.Must(kProcReadOnly, ::move_mount(copy, "", proc, path, MOVE_MOUNT_F_EMPTY_PATH) == 0);
  }
  // A network of its own has settings of its own; the kernel tells them from the host's by their owner.
  if (plan.nesting != nullptr)
    s.Must(kProcReadOnly, ::move_mount(net, "", proc, "sys/net", MOVE_MOUNT_F_EMPTY_PATH) == 0);
  // The parent's mounts exist in this namespace's copy under the same path (its fds would be another namespace's), and
  // a bind keeps the source's read-only, nosuid, nodev and noexec. The targets are names in the kernel's own
  // filesystem.
  s.Must(kProcCover, ::fchdir(proc) == 0);
  for (const ProcCover& c : plan.covers) {
    if (::mount(c.source, c.target, nullptr, MS_BIND, nullptr) == 0) continue;
    // A name that this kernel does not have needs no cover; a cover that is missing must stop the machine.
    int err = errno;
    if (err != ENOENT || ::faccessat(proc, c.target, F_OK, AT_SYMLINK_NOFOLLOW) == 0) s.Die(kProcCover, err);
  }
}

void MountInto(const Stepper& s, const char* type, int dir, const char* path) {
  int mount = MountOwnRaw(s, kNesting, type);
  s.Must(kNesting, ::move_mount(mount, "", dir, path, MOVE_MOUNT_F_EMPTY_PATH) == 0);
}

void BuildRoot(const ChildPlan& plan, const Stepper& s) {
  s.Must(kRoot, ::move_mount(plan.root, "", AT_FDCWD, plan.mount_point, MOVE_MOUNT_F_EMPTY_PATH) == 0);
  // The tree below is the guest's: no name of it is followed, each target is opened and checked first.
  int proc_dir = OpenDirInside(plan.root, "proc");
  s.Must(kProc, proc_dir >= 0);
  int dev_dir = OpenDirInside(plan.root, "dev");
  s.Must(kProc, dev_dir >= 0);
  int sys_dir = OpenDirInside(plan.root, "sys");
  s.Must(kProc, sys_dir >= 0);

  int proc = MountOwnRaw(s, kProcMount, "proc");
  s.Must(kProcMount, AttachRaw(proc, proc_dir));
  CoverProc(plan, s, proc);
  s.Must(kDev, AttachRaw(plan.dev, dev_dir));
  s.Must(kPts, ::move_mount(plan.pts, "", plan.dev, "pts", MOVE_MOUNT_F_EMPTY_PATH) == 0);
  s.Must(kShm, ::move_mount(plan.shm, "", plan.dev, "shm", MOVE_MOUNT_F_EMPTY_PATH) == 0);
  if (plan.nesting != nullptr) {
    s.Must(kNesting, AttachRaw(plan.nesting->hidden, sys_dir));
    MountInto(s, "proc", plan.nesting->hidden, "proc");
    MountInto(s, "sysfs", plan.nesting->hidden, "sys");
  }
  s.Must(kSys, AttachRaw(plan.sys, sys_dir));
  if (plan.nesting != nullptr) MountInto(s, "cgroup2", plan.sys, "fs/cgroup");
  for (const GuestMount& m : plan.mounts) {
    int dir = OpenDirInside(plan.root, m.path);
    s.Must(kGuestMount, dir >= 0);
    s.Must(kGuestMount, AttachRaw(m.mount, dir));
  }
}

void EnterRoot(const ChildPlan& plan, const Stepper& s) {
  s.Must(kPivot, ::fchdir(plan.root) == 0);
  s.Must(kPivot, ::syscall(SYS_pivot_root, ".", ".") == 0);
  s.Must(kPivot, ::umount2(".", MNT_DETACH) == 0);
  s.Must(kPivot, ::chdir("/") == 0);
  int null = ::openat(plan.dev, "null", O_RDWR | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC);
  s.Must(kDevNull, null >= 0);
  for (int fd = 0; fd < 3; ++fd) s.Must(kDevNull, ::dup2(null, fd) == fd);
}

void SetLimit(const Stepper& s, __rlimit_resource_t what, rlim_t value) {
  rlimit limit{};
  s.Must(kLimits, ::getrlimit(what, &limit) == 0);
  // Never above what we have: raising needs CAP_SYS_RESOURCE, which a host may have taken away.
  limit.rlim_max = std::min(limit.rlim_max, value);
  limit.rlim_cur = limit.rlim_max;
  s.Must(kLimits, ::setrlimit(what, &limit) == 0);
}

void SetLimits(const ChildPlan& plan, const Stepper& s) {
  // Sandboxes go before services of the host when it runs out of memory. Raising the score needs no privilege.
  int oom = ::open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
  s.Must(kOom, oom >= 0);
  s.Must(kOom, ::write(oom, "300", 3) == 3);
  ::close(oom);
  // 1 and not 0: a core_pattern with a pipe starts its helper as the host's root even at 0, and only 1 stops it.
  SetLimit(s, RLIMIT_CORE, 1);
  SetLimit(s, RLIMIT_NOFILE, plan.open_files);
  ::umask(022);
}

void BecomeGuest(const ChildPlan& plan, const Stepper& s) {
  s.Must(kUserNs, ::setns(plan.userns, CLONE_NEWUSER) == 0);
  s.Must(kIds, ::syscall(SYS_setgroups, 0, nullptr) == 0);
  s.Must(kIds, ::syscall(SYS_setresgid, 0, 0, 0) == 0);
  s.Must(kIds, ::syscall(SYS_setresuid, 0, 0, 0) == 0);
  s.Must(kKeyring, ::syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, nullptr) >= 0);
  // Changing ids cleared it; if the supervisor dies, so do its machines.
  s.Must(kIds, ::prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
}

// Moves what must survive exec to 3, 4, … and marks everything else close-on-exec.
void ArrangeFds(const ChildPlan& plan, Stepper& s, int* agent) {
  std::array<int, kMaxKeep> high{};
  for (size_t i = 0; i < plan.keep.size(); ++i) {
    high[i] = ::fcntl(plan.keep[i], F_DUPFD_CLOEXEC, kHighFd);
    s.Must(kFds, high[i] >= 0);
  }
  *agent = ::fcntl(plan.agent, F_DUPFD_CLOEXEC, kHighFd);
  s.Must(kFds, *agent >= 0);
  int status = ::fcntl(s.status(), F_DUPFD_CLOEXEC, kHighFd);
  s.Must(kFds, status >= 0);
  s.set_status(status);
  int next = 3;
  for (size_t i = 0; i < plan.keep.size(); ++i) s.Must(kFds, ::dup2(high[i], next++) >= 0);
  s.Must(kFds, ::syscall(SYS_close_range, next, ~0U, CLOSE_RANGE_CLOEXEC) == 0);
}

[[noreturn]] void RunChild(const ChildPlan& plan, int status) {
  Stepper s(status);
  ResetSignals();
  s.Must(kSession, ::setsid() >= 0);
  // An operator may run us at a real-time or raised priority; a control group with a quota does not take such a
  // process.
  sched_param normal{};
  s.Must(kSession, ::sched_setscheduler(0, SCHED_OTHER, &normal) == 0);
  s.Must(kSession, ::setpriority(PRIO_PROCESS, 0, 0) == 0);
  for (int fd : plan.join) s.Must(kCgroup, ::write(fd, "0", 1) == 1);
  s.Must(kNetns, ::setns(plan.netns, CLONE_NEWNET) == 0);
  // After the join, so that the machine's own group is the root of what it sees.
  if (plan.nesting != nullptr) {
    for (int fd : plan.nesting->group_root) s.Must(kCgroup, ::write(fd, "0", 1) == 1);
  }
  s.Must(kCgroupNs, ::unshare(CLONE_NEWCGROUP) == 0);
  if (plan.nesting != nullptr) {
    for (int fd : plan.nesting->group_home) s.Must(kCgroup, ::write(fd, "0", 1) == 1);
  }
  s.Must(kHostname, ::sethostname(plan.hostname, ::strlen(plan.hostname)) == 0);
  s.Must(kHostname, ::setdomainname("(none)", 6) == 0);
  if (plan.cpus != nullptr) s.Must(kAffinity, ::sched_setaffinity(0, sizeof *plan.cpus, plan.cpus) == 0);
  BuildRoot(plan, s);
  EnterRoot(plan, s);
  SetLimits(plan, s);
  int agent = -1;
  ArrangeFds(plan, s, &agent);
  BecomeGuest(plan, s);
  if (plan.nesting != nullptr) s.Must(kNesting, ::unshare(CLONE_NEWNS) == 0);
  s.MustRaw(kFilter, LoadFilterRaw(plan.filter));
  s.MustRaw(kCaps, LimitCapabilitiesRaw(plan.nesting != nullptr ? kNestingCapabilities : kGuestCapabilities));
  const char* const no_environment[] = {nullptr};
  ::syscall(SYS_execveat, agent, "", plan.argv, no_environment, AT_EMPTY_PATH);
  s.Die(kExec, errno);
}

}  // namespace

Result<Child> StartChild(const ChildPlan& plan) {
  SB_CHECK(plan.keep.size() <= kMaxKeep);
  std::array<int, 2> pipe{};
  if (::pipe2(pipe.data(), O_CLOEXEC | O_NONBLOCK) != 0) return FailErrno("pipe");
  Fd read_end(pipe[0]), write_end(pipe[1]);
  int pidfd = -1;
  pid_t pid = Clone3Raw(CLONE_PIDFD | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS, &pidfd);
  if (pid < 0) return FailErrno("clone a machine");
  if (pid == 0) RunChild(plan, pipe[1]);
  return Child{pid, Fd(pidfd), std::move(read_end)};
}

Result<bool> ReadChildStatus(int status) {
  Report r;
  ssize_t n = 0;
  do {
    n = ::read(status, &r, sizeof r);
  } while (n < 0 && errno == EINTR);
  if (n < 0 && errno == EAGAIN) return false;
  if (n < 0) return FailErrno("read the machine's status");
  if (n == 0) return true;
  if (n != sizeof r || r.step >= kStepCount) return Fail(Code::kInternal, "bad report from the machine");
  return FailErrno(std::string("cannot ") + kStepNames.at(r.step), r.err);
}

}  // namespace sandbar::os
