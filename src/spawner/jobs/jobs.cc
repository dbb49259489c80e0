#include "spawner/jobs/jobs.h"

#include <algorithm>

#include "base/log.h"
#include "os/process.h"

namespace sandbar::spawner {
namespace {

struct Slots {
  size_t in_all = 1;
  size_t of_one = 1;
  int64_t limit_ms = 0;  // 0: as long as it takes
  const char* what = "";
};

Slots SlotsOf(JobKind kind) {
  switch (kind) {
    case JobKind::kCopy:
      return {16, 4, 50'000, "copies of snapshots are being made"};  // less than the daemon waits
    case JobKind::kDriveSnapshot:
      return {16, 4, 600'000, "snapshots of drives are being made"};
    case JobKind::kMemorySnapshot:
      return {8, 8, 330'000, "memory snapshots are being made"};
    case JobKind::kSeal:
      return {8, 2, 3'600'000, "snapshots are being made durable"};
    case JobKind::kRead:
      return {8, 2, 3'600'000, "snapshots are being read"};
    case JobKind::kConvert:
      // Making a filesystem can take the square of the number of files, and whoever made the files chose that.
      return {4, 2, 540'000, "snapshots and drives are being converted"};
    case JobKind::kMeasure:
      return {8, 2, 60'000, "disks are being measured"};
    case JobKind::kTidy:
      return {1, 1, 0, "the disk is being tidied"};
  }
  return {};
}

}  // namespace

Result<> Jobs::Admit(const JobFacts& facts) const {
  const Slots slots = SlotsOf(facts.kind);
  size_t in_all = 0, of_one = 0;
  for (const auto& [serial, running] : running_) {
    const JobFacts& other = running.job->facts();
    if (!facts.makes.empty() && other.makes == facts.makes)
      return Fail(Code::kTooMany, facts.makes + " is being made already; try again later");
    if (other.kind != facts.kind) continue;
    ++in_all;
    of_one += other.job_owner == facts.job_owner ? 1 : 0;
  }
  if (in_all >= slots.in_all || (!facts.job_owner.empty() && of_one >= slots.of_one))
    return Fail(Code::kTooMany, std::string("too many ") + slots.what + "; try again later");
  return {};
}

bool Jobs::Any(JobKind kind) const {
  return std::ranges::any_of(running_, [&](const auto& r) { return r.second.job->facts().kind == kind; });
}

bool Jobs::MachineHas(const std::string& machine) const {
  return std::ranges::any_of(running_, [&](const auto& r) { return r.second.job->facts().machine == machine; });
}

void Jobs::Add(uint64_t serial, std::unique_ptr<Job> job, std::unique_ptr<os::MachineCgroup> group, Done done) {
  const int64_t limit = SlotsOf(job->facts().kind).limit_ms;
  const int64_t until = limit == 0 ? 0 : os::BootTimeMs() + limit;
  running_.emplace(serial, Running{std::move(job), std::move(group), std::move(done), until});
}

int Jobs::pidfd(uint64_t serial) const {
  auto it = running_.find(serial);
  return it == running_.end() ? -1 : it->second.job->pidfd();
}

std::unique_ptr<os::MachineCgroup> Jobs::Finish(uint64_t serial) {
  auto it = running_.find(serial);
  if (it == running_.end()) return nullptr;
  Running ended = std::move(it->second);
  // Before anybody hears of it: its place is free then.
  running_.erase(it);
  auto finished = ended.job->Finish();
  if (!finished) log::Warn("{}", finished.error().message);
  if (ended.done) ended.done(*ended.job, finished);
  return std::move(ended.group);
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
    const std::string what = SlotsOf(running.job->facts().kind).what;
    log::Warn("time is up while {}", what);
    // A process that waits for the disk cannot be killed before it has it; whoever waits for the answer gets it now.
    if (auto done = std::exchange(running.done, nullptr))
      done(*running.job, Fail(Code::kUnavailable, "the server's disk is too busy (" + what + "); try again later"));
  }
  return next;
}

}  // namespace sandbar::spawner
