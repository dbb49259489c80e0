#include "guest/quiesce.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/fd.h"
#include "base/signals.h"
#include "guest/launch.h"

namespace sandbar::guest {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kTick{20};
constexpr milliseconds kHangUpAgain{500};
constexpr milliseconds kMaxKill{5000};  // a process in an uninterruptible sleep may outlast SIGKILL
constexpr milliseconds kMaxSync{20000};
constexpr milliseconds kMaxReport{3000};  // for a daemon that takes no output

bool HaveChildren() {
  siginfo_t info{};
  return ::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT | __WALL) == 0 || errno != ECHILD;
}

}  // namespace

void Quiescer::Start(milliseconds grace) {
  if (phase_ != Phase::kIdle && phase_ != Phase::kTerm) return;  // already past the point where grace matters
  if (phase_ == Phase::kIdle) {
    clean_ = true;
    killed_ = 0;
  }
  phase_ = Phase::kTerm;
  until_ = Clock::now() + std::clamp(grace, milliseconds(0), milliseconds(3600 * 1000));
  SignalEverything(SIGTERM);
  commands_->HangUp();
  hang_up_at_ = Clock::now() + kHangUpAgain;
  SignalEverything(SIGCONT);  // a stopped process could not act on it
  Tick();
}

void Quiescer::WriteOut() {
  if (phase_ != Phase::kIdle) return;
  clean_ = true;
  killed_ = 0;
  Sync();
}

// kill(-1) reaches every process of the PID namespace but PID 1; anywhere else it would reach the host.
void Quiescer::SignalEverything(int signal) {
  if (::getpid() == 1) {
    ::kill(-1, signal);
  } else {
    commands_->SignalAll(signal);
  }
}

bool Quiescer::NothingLeft() const {
  if (::getpid() != 1) return !commands_->AnyRunning();
  // Orphans come to PID 1, so no child left means nothing left.
  return !HaveChildren();
}

void Quiescer::OnReaped(uint32_t ended) {
  if (phase_ == Phase::kKill) killed_ += ended;
  if (phase_ == Phase::kTerm || phase_ == Phase::kKill) Tick();
}

bool Quiescer::OnReapedPid(pid_t pid) {
  if (pid != sync_pid_) return false;
  sync_pid_ = 0;
  if (phase_ == Phase::kSync) Report();
  return true;
}

void Quiescer::Tick() {
  if (NothingLeft()) return Sync();
  if (Clock::now() >= until_) {
    if (phase_ == Phase::kKill) return Sync();
    return Kill();
  }
  if (phase_ == Phase::kKill) SignalEverything(SIGKILL);
  // A shell that was just about to read when the signal came would notice it at the next key only.
  if (phase_ == Phase::kTerm && Clock::now() >= hang_up_at_) {
    commands_->HangUp();
    hang_up_at_ = Clock::now() + kHangUpAgain;
  }
  timer_ = loop_->After(kTick, [this] { Tick(); });
}

void Quiescer::Kill() {
  phase_ = Phase::kKill;
  clean_ = false;
  until_ = Clock::now() + kMaxKill;
  SignalEverything(SIGKILL);
  timer_ = loop_->After(kTick, [this] { Tick(); });
}

// In a child: writing out gigabytes must not make the agent deaf. Not sync, which would flush the host's disks, but
// where the kernel is the machine's own: then all of them are, its drives too.
void Quiescer::Sync() {
  phase_ = Phase::kSync;
  timer_ = loop_->After(kMaxSync, [this] { Report(); });
  sync_pid_ = ::fork();
  if (sync_pid_ == 0) {
    ResetSignals();
    ::close_range(3, kLastFd, 0);
    if (own_kernel_) ::sync();
    int root = ::open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ::_exit(root >= 0 && ::syncfs(root) == 0 ? 0 : 1);
  }
  if (sync_pid_ < 0) {
    sync_pid_ = 0;
    Report();
  }
}

void Quiescer::Report() {
  if (phase_ != Phase::kReport) until_ = Clock::now() + kMaxReport;
  phase_ = Phase::kReport;
  if (outlet_->live() && !commands_->AllReported() && Clock::now() < until_) {
    timer_ = loop_->After(kTick, [this] { Report(); });
    return;
  }
  phase_ = Phase::kIdle;
  timer_.Reset();
  // A daemon that lost its connection meanwhile asks again and finds nothing left to do.
  if (outlet_->live()) outlet_->Send(protocol::Quiesced{clean_, killed_});
}

}  // namespace sandbar::guest
