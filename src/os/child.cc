#include "os/child.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
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
constexpr int kHighFd = 512;  // above these
constexpr size_t kMaxReport = 4096;

// Nothing of the spawner's stays open, and all that the program costs is its machine's.
Result<> BecomeInit(const InitSetup& setup, int program, int control, int status) {
  ResetSignals();
  // An operator may run us at a real-time or raised priority; a control group with a quota does not take such a
  // process.
  sched_param normal{};
  if (::setsid() < 0) return FailErrno("cannot start a session");
  if (::sched_setscheduler(0, SCHED_OTHER, &normal) != 0) return FailErrno("cannot set the scheduler");
  if (::setpriority(PRIO_PROCESS, 0, 0) != 0) return FailErrno("cannot set the priority");
  // If the spawner dies, so do its machines.
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return FailErrno("cannot follow the spawner");
  for (int fd : setup.join) {
    if (::write(fd, "0", 1) != 1) return FailErrno("cannot join the control group");
  }
  Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  std::array<Fd, 3> high;
  for (size_t i = 0; int fd : {control, status, program}) high[i++] = Fd(::fcntl(fd, F_DUPFD_CLOEXEC, kHighFd));
  bool ok = null && high[0] && high[1] && high[2];
  for (int fd = 0; fd < 3; ++fd) ok = ok && ::dup2(null.get(), fd) == fd;
  ok = ok && ::dup2(high[0].get(), kControl) == kControl && ::dup2(high[1].get(), kStatus) == kStatus;
  ok = ok && ::dup3(high[2].get(), kProgram, O_CLOEXEC) == kProgram;
  if (!ok || ::syscall(SYS_close_range, kProgram + 1, ~0U, CLOSE_RANGE_CLOEXEC) != 0)
    return FailErrno("cannot arrange file descriptors");
  const std::array<const char*, 6> argv = {"sandbar-guest", "--enter", "3", "--status", "4", nullptr};
  const std::array<const char*, 1> no_environment{};
  ::syscall(SYS_execveat, kProgram, "", argv.data(), no_environment.data(), AT_EMPTY_PATH);
  return FailErrno("cannot start the machine's init");
}

}  // namespace

PrestartedInit& PrestartedInit::operator=(PrestartedInit&& other) noexcept {
  if (this == &other) return *this;
  End();
  child_ = std::move(other.child_);
  control_ = std::move(other.control_);
  return *this;
}

Result<PrestartedInit> PrestartedInit::Start(int program, const InitSetup& setup) {
  std::array<int, 2> pipe{}, pair{};
  if (::pipe2(pipe.data(), O_CLOEXEC | O_NONBLOCK) != 0) return FailErrno("pipe");
  Fd read_end(pipe[0]), write_end(pipe[1]);
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair.data()) != 0) return FailErrno("socketpair");
  Fd ours(pair[0]), theirs(pair[1]);
  // It is there when the process looks.
  const protocol::InitMessage message = Encode(setup);
  SB_TRY(const bool sent, SendPacket(ours.get(), message.bytes, message.fds));
  if (!sent) return Fail(Code::kInternal, "the message to the init is too long");
  int pidfd = -1;
  const pid_t pid = Clone3Raw(CLONE_PIDFD | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS, &pidfd);
  if (pid < 0) return FailErrno("clone a machine");
  if (pid == 0) {
    auto failed = BecomeInit(setup, program, theirs.get(), write_end.get());
    ReportInitError(write_end.get(), failed.error());
    ::_exit(127);
  }
  PrestartedInit init;
  init.child_ = Child{pid, Fd(pidfd), std::move(read_end)};
  init.control_ = std::move(ours);
  return init;
}

bool PrestartedInit::alive() const {
  pollfd p{child_.pidfd.get(), POLLIN, 0};
  return child_.pidfd && ::poll(&p, 1, 0) == 0;
}

Result<Child> PrestartedInit::Enter(const InitPlan& plan) && {
  const protocol::InitMessage message = Encode(plan);
  if (message.fds.size() > kMaxFdsPerPacket) return Fail(Code::kBadRequest, "too many mounts");
  auto sent = SendPacket(control_.get(), message.bytes, message.fds);
  if (!sent) {
    // It has ended, and may have said why.
    SB_TRYV(ReadChildStatus(child_.status.get()));
    return std::unexpected(std::move(sent).error());
  }
  if (!*sent) return Fail(Code::kInternal, "the message to the init is too long");
  control_.Reset();
  return std::move(child_);
}

void PrestartedInit::End() {
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
