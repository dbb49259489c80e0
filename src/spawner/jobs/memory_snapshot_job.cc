#include "spawner/jobs/memory_snapshot_job.h"

#include <fcntl.h>
#include <linux/btrfs.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <vector>

#include "base/files.h"
#include "base/log.h"
#include "os/confine.h"
#include "os/openat.h"
#include "os/process.h"
#include "spawner/machines/qmp.h"

namespace sandbar::spawner {
namespace {

constexpr int64_t kLimitMs = 300'000;
// A guest that writes faster than it can be written down is held after so long.
constexpr int64_t kWhileRunningMs = 3'000;
constexpr uint64_t kSlack = 256ULL << 20;
constexpr int kPipe = 1 << 20;
constexpr int kPauseMs = 20;

// In the process: the memory of one machine, from QEMU into a file.
class Saver {
 public:
  Saver(const MemorySnapshotPlan* plan, const SlotCopy* copy, int file)
      : plan_(plan), copy_(copy), file_(file), qmp_(plan->control, os::BootTimeMs() + kLimitMs), piece_(kPipe) {}

  Result<> Save() {
    SB_TRYV(Confine());
    SB_TRYV(Begin());
    auto saved = Stream();
    if (saved) saved = CopySlot(*copy_);
    if (saved && plan_->go_on) saved = qmp_.Ask("cont");
    pause_ms_ = stopped_at_ == 0 ? 0 : os::BootTimeMs() - stopped_at_;
    if (!saved) Recover();
    if (saved) saved = WriteHeader();
    return saved;
  }
  uint64_t pause_ms() const { return static_cast<uint64_t>(pause_ms_); }
  uint64_t bytes() const { return bytes_; }

 private:
  // From now on somebody hostile may speak. The copy of the disk is made in directories of root's, which needs no more
  // than being root.
  Result<> Confine() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) return FailErrno("pipe");
    stream_ = Fd(ends[0]);
    stream_end_ = Fd(ends[1]);
    ::fcntl(ends[0], F_SETPIPE_SZ, kPipe);
    return os::ConfineToDescriptors(0, {BTRFS_IOC_SNAP_CREATE_V2});
  }

  Result<> Begin() {
    // The bytes that are still on their way to the disk go there before the guest stands still.
    if (::syncfs(file_) != 0) return FailErrno("sync");
    // Said a second time it is an unknown command; whether the first was understood shows in what follows.
    if (auto r = qmp_.Ask("qmp_capabilities"); !r && r.error().code != Code::kIo) return r;
    SB_TRYV(qmp_.Ask(
        "migrate-set-capabilities",
        R"({"capabilities":[{"capability":"x-ignore-shared","state":false},{"capability":"events","state":true}]})"));
    SB_TRYV(qmp_.Ask("migrate-set-parameters", R"({"max-bandwidth":107374182400,"downtime-limit":50})"));
    SB_TRYV(qmp_.Ask("getfd", R"({"fdname":"memory"})", stream_end_.get()));
    stream_end_.Reset();
    if (::lseek(file_, kMemoryHeader, SEEK_SET) < 0) return FailErrno("seek");
    started_at_ = os::BootTimeMs();
    if (!plan_->while_running) {
      held_ = true;
      stopped_at_ = started_at_;
      SB_TRYV(qmp_.Ask("stop"));
    }
    return qmp_.Tell("migrate", R"({"uri":"fd:memory"})");
  }

  Result<> Stream() {
    bool ended = false;
    while (!ended || !completed_) {
      const int64_t now = os::BootTimeMs();
      if (now - started_at_ > kLimitMs) return Fail(Code::kTimeout, "the memory could not be saved in time");
      if (!held_ && (now - started_at_ > kWhileRunningMs || bytes_ > plan_->needs.memory_mib << 20)) {
        SB_TRYV(qmp_.Tell("stop"));
        held_ = true;
      }
      std::array<pollfd, 2> polled{pollfd{qmp_.fd(), POLLIN, 0}, pollfd{ended ? -1 : stream_.get(), POLLIN, 0}};
      if (::poll(polled.data(), polled.size(), kPauseMs) < 0 && errno != EINTR) return FailErrno("poll");
      if (polled[0].revents != 0) SB_TRYV(Hear());
      if (polled[1].revents != 0) {
        SB_TRY(ended, Take());
      }
    }
    return {};
  }

  Result<> Hear() {
    for (;;) {
      SB_TRY(auto line, qmp_.NextLine());
      if (!line) return {};
      const std::string_view event = QmpField(*line, "event");
      if (event == "\"STOP\"" && stopped_at_ == 0) stopped_at_ = os::BootTimeMs();
      if (event == "\"MIGRATION\"") {
        const std::string_view status = QmpField(QmpField(*line, "data"), "status");
        if (status == "\"failed\"" || status == "\"cancelled\"")
          return Fail(Code::kIo, "QEMU could not save its memory");
        completed_ = completed_ || status == "\"completed\"";
      }
      if (!QmpField(*line, "error").empty()) return Fail(Code::kIo, "QEMU refused to save its memory");
    }
  }

  // True at the end.
  Result<bool> Take() {
    const ssize_t n = ::read(stream_.get(), piece_.data(), piece_.size());
    if (n < 0 && errno == EINTR) return false;
    if (n < 0) return FailErrno("read the memory");
    if (n == 0) return true;
    const std::string_view got(piece_.data(), static_cast<size_t>(n));
    bytes_ += got.size();
    if (bytes_ > 2 * (plan_->needs.memory_mib << 20) + kSlack)
      return Fail(Code::kTooLarge, "QEMU says more than its memory can be");
    sum_.Add(got);
    SB_TRYV(WriteAll(file_, got));
    return false;
  }

  // Whatever went wrong, the guest must not stand still for it.
  void Recover() {
    for (const char* command : {"migrate_cancel", "cont"}) {
      if (auto r = qmp_.Ask(command); !r) log::Warn("{}: {}", plan_->machine, r.error().message);
    }
  }

  Result<> WriteHeader() const {
    const std::string page = EncodeMemoryHeader({plan_->needs, bytes_, sum_.Hex()});
    if (::lseek(file_, 0, SEEK_SET) != 0) return FailErrno("seek");
    return WriteAll(file_, page);
  }

  const MemorySnapshotPlan* plan_;
  const SlotCopy* copy_;
  int file_;
  Qmp qmp_;
  Fd stream_, stream_end_;  // QEMU writes to the latter
  std::vector<char> piece_;
  Checksum sum_;
  uint64_t bytes_ = 0;
  int64_t started_at_ = 0, stopped_at_ = 0, pause_ms_ = 0;
  bool held_ = false, completed_ = false;
};

}  // namespace

Result<std::unique_ptr<Job>> MemorySnapshotJob::Start(JobFacts facts, JobGroup group, Disk* disk, const DiskSlot& slot,
                                                      MemorySnapshotPlan plan) {
  facts.machine = plan.machine;
  facts.makes = plan.snapshot;
  std::unique_ptr<MemorySnapshotJob> job(new MemorySnapshotJob(std::move(facts), group, disk));
  SB_TRY(Fd file, disk->NewMemory(plan.snapshot, slot));
  job->made_memory_ = true;
  SB_TRY(job->copy_, disk->BeginCopy(slot));
  auto work = [&]() -> Result<std::string> {
    Saver saver(&plan, &job->copy_, file.get());
    SB_TRYV(saver.Save());
    return std::to_string(saver.pause_ms()) + " " + std::to_string(saver.bytes()) + "\n";
  };
  SB_TRYV(job->Fork({plan.control, job->copy_.source.get(), job->copy_.parent.get(), file.get()}, work));
  return job;
}

MemorySnapshotJob::~MemorySnapshotJob() {
  Kill();
  // A copy that the process makes after all is a leftover of the disk then.
  if (made_memory_) disk_->DropMemory(facts().makes);
  disk_->DropCopy(copy_);
}

Result<> MemorySnapshotJob::Finish() {
  auto said = Collect();
  if (!said) return std::unexpected(std::move(said).error().Context("memory snapshot"));
  auto pause = std::from_chars(said->data(), said->data() + said->size(), pause_ms_);
  if (pause.ec != std::errc() || *pause.ptr != ' ') return Fail(Code::kInternal, "memory snapshot: no report");
  std::from_chars(pause.ptr + 1, said->data() + said->size(), bytes_);
  return disk_->PublishCopy(copy_, facts().makes);
}

}  // namespace sandbar::spawner
