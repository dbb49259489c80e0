#include "spawner/jobs/jobs.h"

#include <sys/epoll.h>

#include <algorithm>
#include <optional>

#include "base/log.h"
#include "os/process.h"

namespace sandbar::spawner {
namespace {

struct Rules {
  size_t in_all = 1;     // places
  size_t of_one = 1;     // places of one owner
  int64_t limit_ms = 0;  // 0: as long as it takes
  const char* what = "";
  // The limits of its control group. None: the job joins no group of its own, see below.
  std::optional<os::CgroupLimits> group = std::nullopt;
};

// A process that reads files of guests gets this much, and is killed when it needs more.
constexpr os::CgroupLimits kReader = {.vcpus = 1, .memory_bytes = 384ULL << 20, .pids = 16};
// mke2fs keeps maps of the whole device.
constexpr os::CgroupLimits kConverter = {.vcpus = 1, .memory_bytes = 1ULL << 30, .pids = 16};

// Two kinds stay in the spawner's own group, because somebody waits for them and they read no file of a guest. A copy
// is one system call on the way to a machine's start, and a group would cost more than the copy. A memory snapshot
// writes gigabytes while the guest stands still: with a memory limit the kernel would slow these writes down.
Rules RulesOf(JobKind kind) {
  switch (kind) {
    case JobKind::kCopy:
      return {16, 4, 50'000, "copies of snapshots are being made"};  // less than the daemon waits
    case JobKind::kDriveSnapshot:
      return {16, 4, 600'000, "snapshots of drives are being made", kReader};
    case JobKind::kMemorySnapshot:
      return {8, 8, 330'000, "memory snapshots are being made"};
    case JobKind::kSeal:
      return {8, 2, 3'600'000, "snapshots are being made durable", kReader};
    case JobKind::kRead:
      return {8, 2, 3'600'000, "snapshots are being read", kReader};
    case JobKind::kConvert:
      // Making a filesystem can take the square of the number of files, and guests choose that number.
      return {4, 2, 540'000, "snapshots and drives are being converted", kConverter};
    case JobKind::kMeasure:
      return {8, 2, 60'000, "disks are being measured", kReader};
    case JobKind::kTidy:
      return {1, 1, 0, "the disk is being tidied", kReader};
  }
  return {};
}

}  // namespace

Result<> Jobs::Admit(const JobFacts& facts) const {
  const Rules rules = RulesOf(facts.kind);
  size_t in_all = 0, of_one = 0;
  for (const auto& [serial, running] : running_) {
    const JobFacts& other = running.job->facts();
    if (!facts.makes.empty() && other.makes == facts.makes)
      return Fail(Code::kTooMany, facts.makes + " is being made already; try again later");
    if (other.kind != facts.kind) continue;
    ++in_all;
    of_one += other.job_owner == facts.job_owner ? 1 : 0;
  }
  if (in_all >= rules.in_all || (!facts.job_owner.empty() && of_one >= rules.of_one))
    return Fail(Code::kTooMany, std::string("too many ") + rules.what + "; try again later");
  return {};
}

Result<> Jobs::Start(JobFacts facts, const Make& make, Done done) {
  SB_TRYV(Admit(facts));
  const Rules rules = RulesOf(facts.kind);
  Running running;
  if (rules.group) {
    SB_TRY(running.group, pool_->TakeGroup(*rules.group));
  }
  const uint64_t serial = next_serial_++;
  auto begin = [&]() -> Result<> {
    SB_TRY(running.job, make(std::move(facts), running.group.get()));
    SB_TRY(running.process, loop_->TryAdd(running.job->pidfd(), EPOLLIN, [this, serial](uint32_t) { OnEnd(serial); }));
    return {};
  };
  if (auto begun = begin(); !begun) {
    running.job.reset();
    pool_->DiscardGroup(std::move(running.group));
    return begun;
  }
  running.done = std::move(done);
  running.until = rules.limit_ms == 0 ? 0 : os::BootTimeMs() + rules.limit_ms;
  running_.emplace(serial, std::move(running));
  return {};
}

bool Jobs::Any(JobKind kind) const {
  return std::ranges::any_of(running_, [&](const auto& r) { return r.second.job->facts().kind == kind; });
}

bool Jobs::MachineHas(const std::string& machine) const {
  return std::ranges::any_of(running_, [&](const auto& r) { return r.second.job->facts().machine == machine; });
}

void Jobs::OnEnd(uint64_t serial) {
  auto it = running_.find(serial);
  if (it == running_.end()) return;
  Running ended = std::move(it->second);
  // Its place is free before anybody hears of its end.
  running_.erase(it);
  ended.process.Reset();
  auto finished = ended.job->Finish();
  if (!finished) log::Warn("{}", finished.error().message);
  if (ended.done) ended.done(*ended.job, finished);
  ended.job.reset();
  pool_->DiscardGroup(std::move(ended.group));
  on_end_();
}

void Jobs::KillAll() {
  for (auto& [serial, running] : running_) running.job->Kill();
}

void Jobs::Cancel(const std::string& subject) {
  for (auto& [serial, running] : running_) {
    const auto& subjects = running.job->facts().subjects;
    if (std::ranges::find(subjects, subject) != subjects.end()) running.job->Kill();
  }
}

int64_t Jobs::Expire(int64_t now) {
  int64_t next = 0;
  for (auto& [serial, running] : running_) {
    if (running.until == 0) continue;
    if (now < running.until) {
      if (next == 0 || running.until < next) next = running.until;
      continue;
    }
    running.until = 0;
    running.job->Kill();
    const std::string what = RulesOf(running.job->facts().kind).what;
    log::Warn("time is up while {}", what);
    // A process that waits for the disk dies only when it has the disk. Whoever waits for the answer gets it now.
    if (auto done = std::exchange(running.done, nullptr))
      done(*running.job, Fail(Code::kUnavailable, "the server's disk is too busy (" + what + "); try again later"));
  }
  return next;
}

}  // namespace sandbar::spawner
