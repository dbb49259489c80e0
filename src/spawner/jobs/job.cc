#include "spawner/jobs/job.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <charconv>

#include "base/log.h"
#include "base/signals.h"
#include "os/openat.h"
#include "os/process.h"

namespace sandbar::spawner {
namespace {

constexpr int kNice = 10;
constexpr size_t kMaxReport = 512;  // fits a pipe, so that nobody waits for a reader

[[noreturn]] void Work(pid_t parent, std::vector<int> kept, const std::vector<Fd>& join, int report,
                       const std::function<Result<std::string>()>& work) {
  ResetSignals();
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  for (const Fd& group : join) {
    if (::write(group.get(), "0", 1) != 1) ::_exit(1);
  }
  // What reads for long stands back, and unlike us may be killed when memory runs out.
  if (!join.empty()) {
    ::setpriority(PRIO_PROCESS, 0, kNice);
    int score = ::open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    [[maybe_unused]] ssize_t n = ::write(score, "500", 3);
  }
  kept.push_back(report);
  os::CloseAllBut(std::move(kept));
  auto done = work();
  // A failure begins with its number, which tells a full disk from a broken one.
  const std::string failed = done ? "" : std::to_string(done.error().sys_errno) + " " + done.error().message;
  const std::string said = (done ? *done : failed).substr(0, kMaxReport);
  [[maybe_unused]] ssize_t n = ::write(report, said.data(), said.size());
  ::_exit(done ? 0 : 1);
}

}  // namespace

Result<std::vector<Fd>> Job::OpenJoin() const {
  return group_ ? group_->OpenAgentJoin() : Result<std::vector<Fd>>(std::vector<Fd>{});
}

Result<> Job::Fork(std::vector<int> kept, const std::function<Result<std::string>()>& work) {
  SB_TRY(auto join, OpenJoin());
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) return FailErrno("pipe");
  report_ = Fd(ends[0]);
  Fd write_end(ends[1]);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return FailErrno("fork");
  if (pid == 0) Work(parent, std::move(kept), join, write_end.get(), work);
  process_ = Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!process_) return FailErrno("pidfd");
  return {};
}

Result<int> Job::Reap() {
  SB_TRY(auto status, os::TryReap(process_.get()));
  process_.Reset();
  return status.value_or(1);
}

Result<std::string> Job::Collect() {
  SB_TRY(int status, Reap());
  std::array<char, kMaxReport> text{};
  const ssize_t n = ::read(report_.get(), text.data(), text.size());
  std::string said(text.data(), n > 0 ? static_cast<size_t>(n) : 0);
  if (status == 0) return said;
  Error error{Code::kIo, "its process ended with " + std::to_string(status)};
  const char* end = said.data() + said.size();
  auto [rest, ec] = std::from_chars(said.data(), end, error.sys_errno);
  if (ec == std::errc{} && rest != end) error.message = said.substr(static_cast<size_t>(rest - said.data()) + 1);
  return std::unexpected(std::move(error));
}

void Job::Kill() {
  if (!process_) return;
  if (auto r = os::SendSignal(process_.get(), SIGKILL); !r) log::Warn("{}", r.error().message);
}

}  // namespace sandbar::spawner
