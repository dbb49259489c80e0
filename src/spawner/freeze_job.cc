#include "spawner/freeze_job.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>

#include "base/log.h"
#include "os/process.h"

namespace sandbar::spawner {

Result<std::unique_ptr<FreezeJob>> FreezeJob::Start(const Disk* disk, const std::string& drive, std::string state) {
  std::unique_ptr<FreezeJob> job(new FreezeJob(std::move(state)));
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) return FailErrno("pipe");
  job->report_ = Fd(ends[0]);
  Fd write_end(ends[1]);
  pid_t pid = ::fork();
  if (pid < 0) return FailErrno("fork");
  if (pid == 0) {
    os::CloseAllBut({disk->drives_fd(), write_end.get()});
    auto done = disk->FreezeDrive(drive, job->state_);
    if (done) ::_exit(0);
    [[maybe_unused]] ssize_t n = ::write(write_end.get(), done.error().message.data(), done.error().message.size());
    ::_exit(1);
  }
  job->process_ = Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!job->process_) return FailErrno("pidfd");
  return job;
}

FreezeJob::~FreezeJob() {
  if (!process_) return;
  if (auto r = os::SendSignal(process_.get(), SIGKILL); !r) log::Warn("{}", r.error().message);
}

Result<> FreezeJob::Finish() {
  SB_TRY(auto status, os::TryReap(process_.get()));
  process_.Reset();
  if (status.value_or(1) == 0) return {};
  std::array<char, 512> text{};
  ssize_t n = ::read(report_.get(), text.data(), text.size());
  return Fail(Code::kIo, "drive: " + std::string(text.data(), n > 0 ? static_cast<size_t>(n) : 0));
}

}  // namespace sandbar::spawner
