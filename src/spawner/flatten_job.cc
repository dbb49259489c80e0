#include "spawner/flatten_job.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>

#include "base/log.h"
#include "os/openat.h"
#include "os/process.h"
#include "spawner/flatten.h"

namespace sandbar::spawner {

namespace {

[[noreturn]] void Work(const std::vector<Fd>& layers, int target, int report) {
  std::vector<int> kept = {target, report};
  for (const Fd& layer : layers) kept.push_back(layer.get());
  os::CloseAllBut(std::move(kept));
  auto done = FlattenLayers(layers, target);
  // The layer must be whole before anybody may stand on it.
  if (done && ::syncfs(target) != 0) done = FailErrno("sync");
  if (done) ::_exit(0);
  [[maybe_unused]] ssize_t n = ::write(report, done.error().message.data(), done.error().message.size());
  ::_exit(1);
}

}  // namespace

Result<std::unique_ptr<FlattenJob>> FlattenJob::Start(Disk* disk, const std::vector<std::string>& layers,
                                                      std::string target) {
  std::vector<Fd> dirs;
  for (const std::string& layer : layers) {
    SB_TRY(std::string path, disk->SnapshotLayer(layer));
    SB_TRY(Fd dir, os::OpenPath(path, O_RDONLY | O_DIRECTORY));
    dirs.push_back(std::move(dir));
  }
  SB_TRY(DiskSlot slot, disk->Create());
  std::unique_ptr<FlattenJob> job(new FlattenJob(disk, std::move(slot), std::move(target)));
  SB_TRY(Fd upper, os::OpenPath(job->slot_.path + "/upper", O_RDONLY | O_DIRECTORY));
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) return FailErrno("pipe");
  job->report_ = Fd(ends[0]);
  Fd write_end(ends[1]);
  pid_t pid = ::fork();
  if (pid < 0) return FailErrno("fork");
  if (pid == 0) Work(dirs, upper.get(), write_end.get());
  job->process_ = Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!job->process_) return FailErrno("pidfd");
  return job;
}

FlattenJob::~FlattenJob() {
  if (process_) {
    if (auto r = os::SendSignal(process_.get(), SIGKILL); !r) log::Warn("{}", r.error().message);
  }
  if (slot_.name.empty()) return;
  if (auto r = disk_->Destroy(slot_); !r) log::Warn("{}", r.error().message);
}

Result<> FlattenJob::Collect() {
  SB_TRY(auto status, os::TryReap(process_.get()));
  process_.Reset();
  if (status.value_or(1) == 0) return {};
  std::array<char, 512> text{};
  ssize_t n = ::read(report_.get(), text.data(), text.size());
  return Fail(Code::kIo, "flatten: " + std::string(text.data(), n > 0 ? static_cast<size_t>(n) : 0));
}

Result<> FlattenJob::Finish() {
  SB_TRYV(Collect());
  SB_TRYV(disk_->Publish(slot_, target_));
  slot_ = {};
  return {};
}

}  // namespace sandbar::spawner
