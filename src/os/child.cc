#include "os/child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <string>
#include <utility>

#include "base/bytes.h"
#include "base/log.h"
#include "base/signals.h"
#include "os/process.h"
#include "os/unix_socket.h"

namespace sandbar::os {
namespace {

constexpr int kControl = 3, kStatus = 4, kProgram = 5;
constexpr size_t kMaxReport = 4096;

// Between clone and exec: raw calls only, and nothing of the spawner's stays open.
[[noreturn]] void RunChild(int program, int control, int status) {
  constexpr int kHigh = 512;
  ResetSignals();
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  const int high_control = ::fcntl(control, F_DUPFD_CLOEXEC, kHigh);
  const int high_status = ::fcntl(status, F_DUPFD_CLOEXEC, kHigh);
  const int high_program = ::fcntl(program, F_DUPFD_CLOEXEC, kHigh);
  bool ok = ::setsid() >= 0 && null >= 0 && high_control >= 0 && high_status >= 0 && high_program >= 0;
  // If the supervisor dies, so do its machines.
  ok = ok && ::prctl(PR_SET_PDEATHSIG, SIGKILL) == 0;
  for (int fd = 0; fd < 3; ++fd) ok = ok && ::dup2(null, fd) == fd;
  ok = ok && ::dup2(high_control, kControl) == kControl && ::dup2(high_status, kStatus) == kStatus;
  ok = ok && ::dup3(high_program, kProgram, O_CLOEXEC) == kProgram;
  ok = ok && ::syscall(SYS_close_range, kProgram + 1, ~0U, 0) == 0;
  const std::array<const char*, 6> argv = {"sandbar-guest", "--enter", "3", "--status", "4", nullptr};
  const std::array<const char*, 1> no_environment{};
  if (ok) ::syscall(SYS_execveat, kProgram, "", argv.data(), no_environment.data(), AT_EMPTY_PATH);
  ::_exit(127);
}

}  // namespace

Entrant& Entrant::operator=(Entrant&& other) noexcept {
  if (this == &other) return *this;
  End();
  child_ = std::move(other.child_);
  control_ = std::move(other.control_);
  return *this;
}

Result<Entrant> Entrant::Start(int program, const EntryStart& start) {
  std::array<int, 2> pipe{}, pair{};
  if (::pipe2(pipe.data(), O_CLOEXEC | O_NONBLOCK) != 0) return FailErrno("pipe");
  Fd read_end(pipe[0]), write_end(pipe[1]);
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair.data()) != 0) return FailErrno("socketpair");
  Fd ours(pair[0]), theirs(pair[1]);
  // It is there when the process looks.
  const EntryMessage message = Encode(start);
  SB_TRY(const bool sent, SendPacket(ours.get(), message.bytes, message.fds));
  if (!sent) return Fail(Code::kInternal, "an entry message is too long");
  int pidfd = -1;
  const pid_t pid = Clone3Raw(CLONE_PIDFD | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS, &pidfd);
  if (pid < 0) return FailErrno("clone a machine");
  if (pid == 0) RunChild(program, theirs.get(), write_end.get());
  Entrant entrant;
  entrant.child_ = Child{pid, Fd(pidfd), std::move(read_end)};
  entrant.control_ = std::move(ours);
  return entrant;
}

bool Entrant::alive() const {
  pollfd p{child_.pidfd.get(), POLLIN, 0};
  return child_.pidfd && ::poll(&p, 1, 0) == 0;
}

Result<Child> Entrant::Enter(const EntryPlan& plan) && {
  const EntryMessage message = Encode(plan);
  if (message.fds.size() > kMaxFdsPerPacket) return Fail(Code::kBadRequest, "too many mounts");
  SB_TRY(const bool sent, SendPacket(control_.get(), message.bytes, message.fds));
  if (!sent) return Fail(Code::kInternal, "an entry message is too long");
  control_.Reset();
  return std::move(child_);
}

void Entrant::End() {
  if (!child_.pidfd) return;
  control_.Reset();
  if (auto r = SendSignal(child_.pidfd.get(), SIGKILL); !r) log::Error("{}", r.error().message);
  siginfo_t info{};
  while (::waitid(P_PIDFD, static_cast<id_t>(child_.pidfd.get()), &info, WEXITED) != 0 && errno == EINTR) {
  }
  child_ = {};
}

Result<bool> ReadChildStatus(int status) {
  std::array<char, kMaxReport> report{};
  ssize_t n = 0;
  do {
    n = ::read(status, report.data(), report.size());
  } while (n < 0 && errno == EINTR);
  if (n < 0 && errno == EAGAIN) return false;
  if (n < 0) return FailErrno("read the machine's status");
  if (n == 0) return true;
  ByteReader reader({report.data(), static_cast<size_t>(n)});
  const int32_t sys_errno = reader.I32();
  std::string message(reader.Str(kMaxReport));
  if (!reader.Done()) return Fail(Code::kInternal, "bad report from the machine");
  return std::unexpected(Error{Code::kIo, std::move(message), sys_errno});
}

}  // namespace sandbar::os
