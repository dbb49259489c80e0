#include "spawner/jobs/measure_job.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "os/openat.h"
#include "os/process.h"

namespace sandbar::spawner {
namespace {

constexpr int64_t kLongestMs = 5000;  // then the job's place goes to another machine
constexpr int64_t kPauseMs = 5;       // between readings, at least; else three times as long as a reading took
constexpr int64_t kPatienceMs = 200;  // after the last reading that found less
constexpr uint64_t kLess = 1ULL << 20;

// Has old files written out, in a process of its own, because that waits for the disk.
class Writer {
 public:
  Writer() = default;
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;
  // Waits for the process: a job that has ended has nobody in its control group.
  ~Writer() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  // Starts the process unless the last one still works.
  Result<> Keep(int slot) {
    if (pid_ > 0 && ::waitpid(pid_, nullptr, WNOHANG) == 0) return {};
    const pid_t parent = ::getpid();
    pid_ = ::fork();
    if (pid_ < 0) return FailErrno("fork");
    if (pid_ > 0) return {};
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() == parent) static_cast<void>(os::InheritedBytes(slot, true));
    ::_exit(0);
  }

 private:
  pid_t pid_ = 0;
};

Result<std::string> Measure(int slot, int report, bool write_out) {
  const int64_t begin = os::BootTimeMs();
  int64_t gained_at = begin;
  uint64_t last = UINT64_MAX;
  Writer writer;
  for (;;) {
    const int64_t start = os::BootTimeMs();
    SB_TRY(uint64_t inherited, os::InheritedBytes(slot, false));
    const int64_t now = os::BootTimeMs();
    if (last == UINT64_MAX || inherited + kLess <= last) {
      const std::array<uint64_t, 2> words = {inherited, static_cast<uint64_t>(now - start)};
      // When the pipe is full this report is lost: the reader has many others to read first.
      [[maybe_unused]] ssize_t n = ::write(report, words.data(), sizeof words);
      last = inherited;
      gained_at = now;
    }
    // Without anything on its way to the disk there is nothing to wait for.
    if (!write_out || now - begin > kLongestMs || now - gained_at > kPatienceMs) return std::string();
    SB_TRYV(writer.Keep(slot));
    ::usleep(static_cast<useconds_t>(std::max(kPauseMs, 3 * (now - start))) * 1000);
  }
}

}  // namespace

Result<std::unique_ptr<MeasureJob>> MeasureJob::Start(JobFacts facts, JobGroup group, const DiskSlot& slot,
                                                      bool write_out) {
  std::unique_ptr<MeasureJob> job(new MeasureJob(std::move(facts), group));
  SB_TRY(Fd dir, os::OpenPath(slot.path, O_RDONLY | O_DIRECTORY));
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) return FailErrno("pipe");
  job->said_ = Fd(ends[0]);
  const Fd write_end(ends[1]);
  auto work = [&]() { return Measure(dir.get(), write_end.get(), write_out); };
  SB_TRYV(job->Fork({dir.get(), write_end.get()}, work));
  return job;
}

Result<> MeasureJob::Finish() {
  auto done = Collect();
  if (!done) return std::unexpected(std::move(done).error().Context("measure a disk"));
  return {};
}

std::optional<Measurement> ReadMeasurement(int report) {
  std::array<uint64_t, 64> words{};
  // Each is written in one piece.
  const ssize_t n = ::read(report, words.data(), sizeof words);
  const size_t count = n > 0 ? static_cast<size_t>(n) / 16 : 0;
  if (count == 0) return std::nullopt;
  return Measurement{words[2 * count - 2], words[2 * count - 1]};
}

}  // namespace sandbar::spawner
