#include "os/machine_init.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/keyctl.h>
#include <linux/openat2.h>
#include <poll.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/bytes.h"
#include "os/caps.h"
#include "os/seccomp.h"
#include "os/unix_socket.h"

namespace sandbar::os {
namespace {

constexpr int kHighFd = 512;  // above anything that `keep` is moved to

Result<> Must(bool ok, const char* step) {
  if (!ok) return FailErrno(std::string("cannot ") + step);
  return {};
}
// For the functions that return a negative errno.
Result<> MustRaw(int rc, const char* step) {
  if (rc != 0) return FailErrno(std::string("cannot ") + step, -rc);
  return {};
}

constexpr const char* kGroup = "join the control group";
constexpr const char* kMountProc = "mount /proc";
constexpr const char* kReadOnly = "make a part of /proc read-only";
constexpr const char* kForContainers = "prepare for containers";
constexpr const char* kTrees = "find /proc, /dev and /sys in the image (each must be a directory)";
constexpr const char* kDrive = "mount a drive (its path must be a directory that is not below another mount)";
constexpr const char* kPivot = "change the root";
constexpr const char* kLimits = "set resource limits";
constexpr const char* kIds = "take the machine's ids";

Result<Packet> Receive(int control) {
  for (;;) {
    SB_TRY(auto packet, ReceivePacket(control, protocol::kMaxInitBytes, true));
    if (packet) return *std::move(packet);
    pollfd p{control, POLLIN, 0};
    if (::poll(&p, 1, -1) < 0 && errno != EINTR) return FailErrno("wait for a machine");
  }
}

Result<Fd> OpenDirInside(int root, const char* path, const char* step) {
  open_how how{};
  how.flags = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
  how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV;
  Fd dir(static_cast<int>(::syscall(SYS_openat2, root, path, &how, sizeof how)));
  SB_TRYV(Must(static_cast<bool>(dir), step));
  return dir;
}

// Moves a mount onto an opened directory.
bool AttachTo(int mount, int dir) {
  return ::move_mount(mount, "", dir, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) == 0;
}
bool AttachAt(int mount, int dir, const char* path) {
  return ::move_mount(mount, "", dir, path, MOVE_MOUNT_F_EMPTY_PATH) == 0;
}

// What shows the mounter's own namespaces, so that nobody else can prepare it.
Result<Fd> MountOwn(const char* type, const char* step) {
  Fd context(::fsopen(type, FSOPEN_CLOEXEC));
  SB_TRYV(Must(static_cast<bool>(context), step));
  SB_TRYV(Must(::fsconfig(context.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) == 0, step));
  Fd mount(::fsmount(context.get(), FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC));
  SB_TRYV(Must(static_cast<bool>(mount), step));
  return mount;
}

Result<> MountInto(const char* type, int dir, const char* path) {
  SB_TRY(Fd mount, MountOwn(type, kForContainers));
  return Must(AttachAt(mount.get(), dir, path), kForContainers);
}

Result<> JoinGroups(const std::vector<int>& files) {
  for (int fd : files) SB_TRYV(Must(::write(fd, "0", 1) == 1, kGroup));
  return {};
}

Result<> ReadOnlyParts(const InitSetup& setup, int proc) {
  Fd net;
  if (setup.nesting) {
    net = Fd(::open_tree(proc, "sys/net", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC));
    SB_TRYV(Must(static_cast<bool>(net), kReadOnly));
  }
  for (const std::string& path : setup.read_only) {
    Fd copy(::open_tree(proc, path.c_str(), OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC));
    if (!copy && errno == ENOENT) continue;  // not on this kernel
    SB_TRYV(Must(static_cast<bool>(copy), kReadOnly));
    mount_attr attr{};
    attr.attr_set = MOUNT_ATTR_RDONLY;
    SB_TRYV(Must(::mount_setattr(copy.get(), "", AT_EMPTY_PATH, &attr, sizeof attr) == 0, kReadOnly));
    SB_TRYV(Must(AttachAt(copy.get(), proc, path.c_str()), kReadOnly));
  }
  // A network of its own has settings of its own; the kernel tells them from the host's by their owner.
  if (setup.nesting) SB_TRYV(Must(AttachAt(net.get(), proc, "sys/net"), kReadOnly));
  return {};
}

// The spawner's mounts exist in this namespace's copy under the same path (its fds would be another namespace's), and a
// bind keeps the source's read-only, nosuid, nodev and noexec. The targets are names in the kernel's own filesystem.
Result<> Cover(int proc, const std::vector<ProcCover>& covers) {
  constexpr const char* kStep = "cover a file of /proc";
  SB_TRYV(Must(::fchdir(proc) == 0, kStep));
  for (const ProcCover& c : covers) {
    if (::mount(c.source.c_str(), c.target.c_str(), nullptr, MS_BIND, nullptr) == 0) continue;
    // A name that this kernel does not have needs no cover; a cover that is missing must stop the machine.
    const int err = errno;
    if (err == ENOENT && ::faccessat(proc, c.target.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) != 0) continue;
    return FailErrno(std::string("cannot ") + kStep, err);
  }
  return {};
}

Result<> SetLimit(__rlimit_resource_t what, rlim_t value) {
  rlimit limit{};
  SB_TRYV(Must(::getrlimit(what, &limit) == 0, kLimits));
  // Never above what we have: raising needs CAP_SYS_RESOURCE, which a host may have taken away.
  limit.rlim_max = std::min(limit.rlim_max, value);
  limit.rlim_cur = limit.rlim_max;
  return Must(::setrlimit(what, &limit) == 0, kLimits);
}

Result<> SetLimits(const InitSetup& setup, int proc) {
  // Sandboxes go before services of the host when it runs out of memory. Raising the score needs no privilege.
  constexpr const char* kScore = "set the out-of-memory score";
  Fd oom(::openat(proc, "self/oom_score_adj", O_WRONLY | O_CLOEXEC));
  SB_TRYV(Must(static_cast<bool>(oom), kScore));
  SB_TRYV(Must(::write(oom.get(), "300", 3) == 3, kScore));
  // 1 and not 0: a core_pattern with a pipe starts its helper as the host's root even at 0, and only 1 stops it.
  SB_TRYV(SetLimit(RLIMIT_CORE, 1));
  SB_TRYV(SetLimit(RLIMIT_NOFILE, setup.open_files));
  ::umask(022);
  return {};
}

// Everything before there is an image. Its /proc, which waits at setup.proc_at.
Result<Fd> Prepare(const InitSetup& setup) {
  SB_TRYV(Must(::setns(setup.netns, CLONE_NEWNET) == 0, "join the network namespace"));
  // It is in the machine's group already, so that this is the root of what it sees.
  SB_TRYV(JoinGroups(setup.group_root));
  SB_TRYV(Must(::unshare(CLONE_NEWCGROUP) == 0, "make the cgroup namespace"));
  SB_TRYV(JoinGroups(setup.group_home));
  SB_TRYV(Must(::setdomainname("(none)", 6) == 0, "set the domain name"));
  SB_TRY(Fd proc, MountOwn("proc", kMountProc));
  SB_TRYV(Must(AttachAt(proc.get(), AT_FDCWD, setup.proc_at.c_str()), kMountProc));
  SB_TRYV(ReadOnlyParts(setup, proc.get()));
  SB_TRYV(Cover(proc.get(), setup.covers));
  SB_TRYV(SetLimits(setup, proc.get()));
  return proc;
}

Result<> BuildRoot(const InitPlan& plan, int proc) {
  SB_TRYV(Must(AttachAt(plan.root, AT_FDCWD, plan.mount_point.c_str()), "attach the root filesystem"));
  // The tree below is the guest's: no name of it is followed, each target is opened and checked first.
  SB_TRY(Fd proc_dir, OpenDirInside(plan.root, "proc", kTrees));
  SB_TRY(Fd dev_dir, OpenDirInside(plan.root, "dev", kTrees));
  SB_TRY(Fd sys_dir, OpenDirInside(plan.root, "sys", kTrees));
  SB_TRYV(Must(AttachTo(proc, proc_dir.get()), kMountProc));
  SB_TRYV(Cover(proc, plan.covers));
  SB_TRYV(Must(AttachTo(plan.dev, dev_dir.get()), "mount /dev"));
  SB_TRYV(Must(AttachAt(plan.pts, plan.dev, "pts"), "mount /dev/pts"));
  SB_TRYV(Must(AttachAt(plan.shm, plan.dev, "shm"), "mount /dev/shm"));
  if (plan.hidden >= 0) {
    SB_TRYV(Must(AttachTo(plan.hidden, sys_dir.get()), kForContainers));
    SB_TRYV(MountInto("proc", plan.hidden, "proc"));
    SB_TRYV(MountInto("sysfs", plan.hidden, "sys"));
  }
  SB_TRYV(Must(AttachTo(plan.sys, sys_dir.get()), "mount /sys"));
  if (plan.hidden >= 0) SB_TRYV(MountInto("cgroup2", plan.sys, "fs/cgroup"));
  for (const GuestMount& m : plan.mounts) {
    SB_TRY(Fd dir, OpenDirInside(plan.root, m.path.c_str(), kDrive));
    SB_TRYV(Must(AttachTo(m.mount, dir.get()), kDrive));
  }
  return {};
}

Result<> EnterRoot(const InitPlan& plan) {
  SB_TRYV(Must(::fchdir(plan.root) == 0, kPivot));
  SB_TRYV(Must(::syscall(SYS_pivot_root, ".", ".") == 0, kPivot));
  SB_TRYV(Must(::umount2(".", MNT_DETACH) == 0, kPivot));
  SB_TRYV(Must(::chdir("/") == 0, kPivot));
  Fd null(::openat(plan.dev, "null", O_RDWR | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC));
  for (int fd = 0; fd < 3; ++fd) SB_TRYV(Must(null && ::dup2(null.get(), fd) == fd, "open /dev/null"));
  return {};
}

// The process that answers statfs reads its caller's path from the caller's memory. The kernel demands this capability
// in the machine's user namespace for that, because the caller may be another user's or closed to its own. It stays out
// of the effective and the bounding set: no program that is executed in the machine gets it.
constexpr uint64_t kToAnswerStatfs = uint64_t{1} << CAP_SYS_PTRACE;

Result<uint64_t> MountId(int mount) {
  constexpr const char* kStep = "identify a mount";
  struct statx st{};
  SB_TRYV(Must(::statx(mount, "", AT_EMPTY_PATH, STATX_MNT_ID, &st) == 0, kStep));
  if ((st.stx_mask & STATX_MNT_ID) == 0) return Fail(Code::kUnsupported, std::string("cannot ") + kStep);
  return st.stx_mnt_id;
}

Result<> FindMounts(const InitPlan& plan, StatfsDuty& duty) {
  std::vector<int> disks = {plan.root};
  for (const GuestMount& m : plan.mounts) disks.push_back(m.mount);
  for (int mount : disks) {
    SB_TRY(uint64_t id, MountId(mount));
    duty.disks.push_back(id);
  }
  for (int mount : {plan.dev, plan.shm}) {
    SB_TRY(uint64_t id, MountId(mount));
    duty.others.push_back(id);
  }
  return {};
}

Result<> BecomeGuest(const InitPlan& plan, const InitSetup& setup, uint64_t reserved) {
  SB_TRYV(Must(::setns(plan.userns, CLONE_NEWUSER) == 0, "join the user namespace"));
  SB_TRYV(Must(::syscall(SYS_setgroups, 0, nullptr) == 0, kIds));
  SB_TRYV(Must(::syscall(SYS_setresgid, 0, 0, 0) == 0, kIds));
  SB_TRYV(Must(::syscall(SYS_setresuid, 0, 0, 0) == 0, kIds));
  SB_TRYV(Must(::syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, nullptr) >= 0, "make a session keyring"));
  // Changing ids cleared it; if the spawner dies, so do its machines.
  SB_TRYV(Must(::prctl(PR_SET_PDEATHSIG, SIGKILL) == 0, kIds));
  if (setup.nesting) SB_TRYV(Must(::unshare(CLONE_NEWNS) == 0, kForContainers));
  const sock_fprog filter{static_cast<unsigned short>(setup.filter.size()),
                          const_cast<sock_filter*>(setup.filter.data())};
  SB_TRYV(MustRaw(LoadFilterRaw(&filter), "load the system call filter"));
  SB_TRYV(MustRaw(LimitCapabilitiesRaw(setup.capabilities, reserved), "limit capabilities"));
  // Its memory belongs to the host's user namespace, in which this program was started; so nobody in the machine may
  // look into it, whatever they are there.
  return Must(::prctl(PR_SET_DUMPABLE, 0) == 0, "close the memory");
}

Result<> BecomeProgram(const InitPlan& plan) {
  constexpr const char* kStep = "start the agent";
  std::vector<int> high;
  for (int fd : plan.keep) high.push_back(::fcntl(fd, F_DUPFD_CLOEXEC, kHighFd));
  const int agent = ::fcntl(plan.agent, F_DUPFD_CLOEXEC, kHighFd);
  SB_TRYV(Must(agent >= 0, kStep));
  for (size_t i = 0; i < high.size(); ++i) SB_TRYV(Must(::dup2(high[i], static_cast<int>(3 + i)) >= 0, kStep));
  std::vector<const char*> argv;
  for (const std::string& a : plan.argv) argv.push_back(a.c_str());
  argv.push_back(nullptr);
  const std::array<const char*, 1> no_environment{};
  ::syscall(SYS_execveat, agent, "", argv.data(), no_environment.data(), AT_EMPTY_PATH);
  return Must(false, kStep);
}

}  // namespace

Result<EnteredMachine> EnterMachine(int control) {
  SB_TRY(Packet first, Receive(control));
  SB_TRY(InitSetup setup, protocol::DecodeInitSetup(first.bytes, first.fds));
  SB_TRY(Fd proc, Prepare(setup));
  EnteredMachine entered;
  if (setup.figures.page >= 0 && setup.figures.ask >= 0) {
    // Ahead, while nobody waits: the kernel takes 60 µs to translate a filter. Nothing in between calls statfs.
    entered.statfs.emplace();
    SB_TRY(entered.statfs->calls, TakeStatfsCalls());
    for (Fd& fd : first.fds) {
      if (fd.get() == setup.figures.page)
        entered.statfs->figures = std::move(fd);
      else if (fd.get() == setup.figures.ask)
        entered.statfs->ask = std::move(fd);
    }
  }
  SB_TRY(Packet second, Receive(control));
  SB_TRY(InitPlan plan, protocol::DecodeInitPlan(second.bytes, second.fds));
  SB_TRYV(Must(::sethostname(plan.hostname.c_str(), plan.hostname.size()) == 0, "set the host name"));
  if (plan.cpus) SB_TRYV(Must(::sched_setaffinity(0, sizeof *plan.cpus, &*plan.cpus) == 0, "set the cpu affinity"));
  SB_TRYV(BuildRoot(plan, proc.get()));
  SB_TRYV(EnterRoot(plan));
  if (entered.statfs) SB_TRYV(FindMounts(plan, *entered.statfs));
  SB_TRYV(BecomeGuest(plan, setup, entered.statfs ? kToAnswerStatfs : 0));
  if (plan.agent >= 0) SB_TRYV(BecomeProgram(plan));
  for (Fd& fd : second.fds) {
    if (std::ranges::find(plan.keep, fd.get()) != plan.keep.end()) entered.kept.push_back(std::move(fd));
  }
  return entered;
}

void ReportInitError(int status, const Error& error) {
  ByteWriter report;
  report.I32(error.sys_errno);
  report.Str(error.message);
  [[maybe_unused]] ssize_t n = ::write(status, report.str().data(), report.str().size());
}

}  // namespace sandbar::os
