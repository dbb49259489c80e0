#include "guest/statfs_service.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "base/signals.h"
#include "guest/statfs_server.h"

namespace sandbar::guest {
namespace {

constexpr std::chrono::milliseconds kIdle{5000};
constexpr int kFirst = 3, kHigh = 16;

// Nothing of the agent's but these three stays open. They become 3, 4 and 5.
bool KeepOnly(const ChildSetup& setup, os::StatfsDuty& duty) {
  for (int fd : {0, 1, 2}) {
    if (::dup2(setup.null.get(), fd) != fd) return false;
  }
  const std::array<Fd*, 3> kept = {&duty.calls.listener, &duty.figures, &duty.ask};
  std::array<int, 3> high{};
  for (size_t i = 0; i < kept.size(); ++i) high[i] = ::fcntl(kept[i]->get(), F_DUPFD_CLOEXEC, kHigh);
  for (size_t i = 0; i < kept.size(); ++i) {
    const int fd = kFirst + static_cast<int>(i);
    if (high[i] < 0 || ::dup2(high[i], fd) != fd) return false;
    static_cast<void>(kept[i]->Release());
    *kept[i] = Fd(fd);
  }
  return ::close_range(kFirst + kept.size(), kLastFd, 0) == 0;
}

}  // namespace

StatfsService::StatfsService(Loop* loop, const ChildSetup* setup, std::optional<os::StatfsDuty> duty)
    : loop_(loop), setup_(setup), duty_(std::move(duty)) {
  if (duty_) watch_ = loop_->Add(duty_->calls.listener.get(), EPOLLIN, [this](uint32_t) { OnCall(); });
}

bool StatfsService::MakeShared() {
  if (shared_ != nullptr) return true;
  void* page = ::mmap(nullptr, sizeof *shared_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return false;
  shared_ = static_cast<seccomp_notif*>(page);
  os::WakeInTurns(duty_->calls.listener.get());
  return true;
}

void StatfsService::OnCall() {
  server_ = MakeShared() ? ::fork() : -1;
  if (server_ == 0) {
    ResetSignals();
    if (!JoinCgroups(*setup_) || ::setsid() < 0 || !KeepOnly(*setup_, *duty_)) ::_exit(1);
    ::prctl(PR_SET_NAME, "sandbar-statfs");
    RunStatfsServer({&*duty_, shared_, ending_ ? std::chrono::milliseconds(0) : kIdle});
  }
  if (server_ > 0) return watch_.Set(0);
  server_ = 0;
  RefuseCall();
}

// There is no memory for a process. One call at a time: callers that try again for ever must not hold up the agent.
void StatfsService::RefuseCall() {
  const int listener = duty_->calls.listener.get();
  pollfd p{listener, POLLIN, 0};
  seccomp_notif call{};
  if (::poll(&p, 1, 0) == 1 && (p.revents & POLLIN) != 0 && os::ReceiveCall(listener, &call))
    os::AnswerCall(listener, call.id, -ENOMEM);
}

void StatfsService::KillStoppedServer() const {
  siginfo_t info{};
  if (server_ != 0 && ::waitid(P_PID, static_cast<id_t>(server_), &info, WSTOPPED | WNOHANG | WNOWAIT) == 0 &&
      info.si_pid == server_)
    ::kill(server_, SIGKILL);
}

bool StatfsService::OnReaped(pid_t pid, int status) {
  if (server_ == 0 || pid != server_) return false;
  server_ = 0;
  if (shared_->id != 0) os::AnswerCall(duty_->calls.listener.get(), shared_->id, -EINTR);
  *shared_ = {};
  // It could not even begin, and the next one may not either.
  if (WIFEXITED(status) && WEXITSTATUS(status) != 0) RefuseCall();
  watch_.Set(EPOLLIN);
  return true;
}

}  // namespace sandbar::guest
