#include "os/self_sandbox.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <utility>

#include "base/fd.h"
#include "os/seccomp.h"
#include "os/seccomp_program.h"

namespace sandbar::os {
namespace {

constexpr int kOpenTreeAttr = 467;  // newer than the headers

// The daemon's libraries may use any ordinary call, so this is a deny-list of what only an intruder would want.
// clang-format off
constexpr int kRefused[] = {
    SYS_mount, SYS_umount2, SYS_pivot_root, SYS_chroot, SYS_fsopen, SYS_fsconfig, SYS_fsmount, SYS_fspick,
    SYS_move_mount, SYS_open_tree, SYS_mount_setattr, kOpenTreeAttr, SYS_setns, SYS_unshare, SYS_ptrace,
    SYS_process_vm_readv, SYS_process_vm_writev, SYS_process_madvise, SYS_pidfd_getfd, SYS_kcmp, SYS_bpf,
    SYS_perf_event_open, SYS_userfaultfd, SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register, SYS_keyctl,
    SYS_add_key, SYS_request_key, SYS_open_by_handle_at, SYS_name_to_handle_at, SYS_init_module, SYS_finit_module,
    SYS_delete_module, SYS_kexec_load, SYS_kexec_file_load, SYS_reboot, SYS_swapon, SYS_swapoff, SYS_settimeofday,
    SYS_clock_settime, SYS_clock_adjtime, SYS_adjtimex, SYS_sethostname, SYS_setdomainname, SYS_syslog, SYS_acct,
    SYS_quotactl, SYS_quotactl_fd, SYS_iopl, SYS_ioperm, SYS_modify_ldt, SYS_mknod, SYS_mknodat, SYS_fanotify_init,
    SYS_personality, SYS_vhangup, SYS_move_pages, SYS_migrate_pages, SYS_mbind, SYS_set_mempolicy,
    SYS_lookup_dcookie,
};
// clang-format on

Result<> LoadFilter() {
  std::vector<SyscallEntry> entries;
  for (int number : kRefused) entries.push_back({number, Errno(EPERM), {}});
  constexpr uint32_t kNewNamespace =
      CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET;
  const ArgCheck new_namespace{.arg = 0, .op = ArgCheck::kAnyBit, .value = kNewNamespace};
  entries.push_back({SYS_clone, kAllow, {{{new_namespace}, Errno(EPERM)}}});
  // Its flags lie in memory, out of a filter's reach; the C library falls back to clone.
  entries.push_back({SYS_clone3, Errno(ENOSYS), {}});
  SB_TRY(auto filter, AssembleFilter(std::move(entries), kAllow));
  sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  if (int err = LoadFilterRaw(&program); err != 0) return FailErrno("load the daemon's filter", -err);
  return {};
}

Result<> DropIds(uint32_t uid, uint32_t gid) {
  if (::geteuid() == 0) {
    if (::setgroups(0, nullptr) != 0) return FailErrno("setgroups");
    if (::setresgid(gid, gid, gid) != 0) return FailErrno("setresgid");
    if (::setresuid(uid, uid, uid) != 0) return FailErrno("setresuid");
  }
  if (::getuid() != uid || ::geteuid() != uid || ::getgid() != gid || ::getegid() != gid) {
    return Fail(Code::kForbidden, "cannot become the daemon's user");
  }
  return {};
}

Result<> DropCapabilities() {
  (void)::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct none[2] = {};
  if (::syscall(SYS_capset, &header, none) != 0) return FailErrno("capset");
  return {};
}

Result<> CloseStdio() {
  Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null) return FailErrno("open /dev/null");
  for (int fd : {0, 1, 2}) {
    if (::dup2(null.get(), fd) < 0) return FailErrno("dup2");
  }
  return {};
}

}  // namespace

Result<> DropToDaemon(const SelfSandboxOptions& options) {
  if (options.uid == 0 || options.gid == 0) return Fail(Code::kForbidden, "the daemon does not run as root");
  if (!options.keep_stdio) SB_TRYV(CloseStdio());
  // The bounding set can only be cut while still privileged. A daemon that was started unprivileged cannot, and need
  // not: no_new_privs keeps the bounding set from mattering.
  for (unsigned long c = 0; c < 64; ++c) (void)::prctl(PR_CAPBSET_DROP, c, 0, 0, 0);
  SB_TRYV(DropIds(options.uid, options.gid));
  SB_TRYV(DropCapabilities());
  const rlimit no_core{0, 0};
  if (::setrlimit(RLIMIT_CORE, &no_core) != 0) return FailErrno("setrlimit core");
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return FailErrno("no_new_privs");
  // After the change of ids, which sets it back: no core, no ptrace, and /proc/<pid> belongs to root.
  if (::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) return FailErrno("non-dumpable");
  return LoadFilter();
}

}  // namespace sandbar::os
