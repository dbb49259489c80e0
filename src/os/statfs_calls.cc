#include "os/statfs_calls.h"

#include <linux/audit.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>

namespace sandbar::os {
namespace {

// Newer than the build machine's headers.
constexpr unsigned long kSetFlags = _IOW('!', 4, __u64);
constexpr unsigned long kSyncWakeUp = 1;

// The registers of a system call that statfs and fstatfs do not use.
constexpr std::array<size_t, 2> kKeyArgs = {4, 5};

sock_filter Statement(uint16_t code, uint32_t k) {
  return {code, 0, 0, k};
}
sock_filter Load(size_t offset) {
  return Statement(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offset));
}
sock_filter IfEqual(uint32_t value, size_t if_true, size_t if_false) {
  return {BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint8_t>(if_true), static_cast<uint8_t>(if_false), value};
}

}  // namespace

// For every other number the answer depends on nothing but the number, so the kernel remembers it and does not run the
// program.
std::vector<sock_filter> StatfsFilter(const StatfsKey& key) {
  std::vector<sock_filter> out = {
      Load(offsetof(seccomp_data, arch)),
      IfEqual(AUDIT_ARCH_X86_64, 0, 3),  // the filter beside this one kills other kinds of calls
      Load(offsetof(seccomp_data, nr)),
      IfEqual(SYS_statfs, 10, 0),
      IfEqual(SYS_fstatfs, 1, 0),
      Statement(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  constexpr size_t kHalves = 2 * kKeyArgs.size();
  for (size_t i = 0; i < kHalves; ++i) {
    // Little-endian: the low half comes first.
    out.push_back(Load(offsetof(seccomp_data, args) + sizeof(uint64_t) * kKeyArgs[i / 2] + sizeof(uint32_t) * (i % 2)));
    const size_t to_notify = 2 * (kHalves - 1 - i);
    const auto half = static_cast<uint32_t>(key[i / 2] >> (32 * (i % 2)));
    out.push_back(IfEqual(half, i + 1 == kHalves ? 1 : 0, to_notify));
  }
  out.push_back(Statement(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF));
  out.push_back(Statement(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  return out;
}

Result<StatfsCalls> TakeStatfsCalls() {
  StatfsCalls calls;
  if (::getrandom(calls.key.data(), sizeof calls.key, 0) != sizeof calls.key) return FailErrno("draw a key");
  std::vector<sock_filter> filter = StatfsFilter(calls.key);
  const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  // A call that is being answered is interrupted by nothing but the end of its process: no call is served twice.
  const unsigned long flags = SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
  calls.listener = Fd(static_cast<int>(::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program)));
  if (!calls.listener) return FailErrno("take over statfs");
  return calls;
}

bool CanTakeStatfsCalls() {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(TakeStatfsCalls() ? 0 : 1);
  int status = 0;
  return pid > 0 && ::waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool ReceiveCall(int listener, seccomp_notif* call) {
  return ::ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, call) == 0;
}

bool CallWaits(int listener, uint64_t call) {
  return ::ioctl(listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &call) == 0;
}

void AnswerCall(int listener, uint64_t call, int error) {
  seccomp_notif_resp answer{};
  answer.id = call;
  answer.error = error;
  ::ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
}

void WakeInTurns(int listener) {
  ::ioctl(listener, kSetFlags, kSyncWakeUp);
}

int RealFstatfs(int fd, struct statfs* out, const StatfsKey& key) {
  return static_cast<int>(::syscall(SYS_fstatfs, fd, out, 0, 0, key[0], key[1]));
}

}  // namespace sandbar::os
