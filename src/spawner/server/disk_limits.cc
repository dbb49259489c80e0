#include "spawner/server/disk_limits.h"

#include <sys/epoll.h>

#include <algorithm>

#include "base/log.h"
#include "os/process.h"
#include "spawner/jobs/measure_job.h"

namespace sandbar::spawner {
namespace {

// Looks that are due soon are made in one pass.
constexpr int64_t kTogetherMs = 50;
// A measurement that could not begin counts as one that took so long.
constexpr int64_t kFailedMs = 500;

std::string SubjectOf(const Machine& machine) {
  return "the disk of " + machine.id();
}

}  // namespace

void DiskLimits::Begin(uint64_t serial, Machine* machine) {
  if (!machine->disk().limit_watch().watched()) return;
  entries_[serial].machine = machine;
  at_ = 0;
}

void DiskLimits::End(uint64_t serial) {
  auto it = entries_.find(serial);
  if (it == entries_.end()) return;
  StopMeasuring(it->second);
  entries_.erase(it);
}

void DiskLimits::Look(int64_t now, int64_t* next) {
  if (now >= at_) {
    at_ = 0;
    for (auto& [serial, entry] : entries_) {
      if (entry.machine->state() != Machine::State::kRunning) continue;
      if (now >= entry.look_at) LookAt(serial, entry, now);
      if (at_ == 0 || entry.look_at < at_) at_ = entry.look_at;
    }
    if (at_ != 0) at_ = std::max(at_, now + kTogetherMs);
  }
  if (at_ != 0 && (*next == 0 || at_ < *next)) *next = at_;
}

void DiskLimits::LookAt(uint64_t serial, Entry& entry, int64_t now) {
  Machine& machine = *entry.machine;
  DiskLimitWatch& limit = machine.disk().limit_watch();
  entry.look_at = std::max(limit.Look(now), now + kTogetherMs);
  if (!limit.wants()) return;
  auto begun = StartMeasuring(serial, entry);
  // kTooMany: all places for measurements are taken; the next look tries again.
  if (begun || begun.error().code == Code::kTooMany) return;
  log::Warn("disk of {}: {}", machine.id(), begun.error().message);
  limit.Began(now);
  if (auto ended = machine.disk().EndMeasuring(now + kFailedMs); !ended)
    log::Warn("disk of {}: {}", machine.id(), ended.error().message);
}

Result<> DiskLimits::StartMeasuring(uint64_t serial, Entry& entry) {
  const Machine& machine = *entry.machine;
  MachineDisk& disk = entry.machine->disk();
  JobFacts facts{.kind = JobKind::kMeasure, .job_owner = machine.job_owner(), .subjects = {SubjectOf(machine)}};
  Fd report;
  auto make = [&](JobFacts f, JobGroup group) -> Result<std::unique_ptr<Job>> {
    SB_TRY(auto job, MeasureJob::Start(std::move(f), group, disk.slot(), disk.limit_watch().unwritten()));
    report = job->TakeReport();
    return job;
  };
  SB_TRYV(jobs_->Start(std::move(facts), make, [this, serial](Job&, const Result<>&) { OnMeasured(serial); }));
  disk.limit_watch().Began(os::BootTimeMs());
  entry.report = std::move(report);
  // Without the watch, the report is read when the job ends.
  auto watch = loop_->TryAdd(entry.report.get(), EPOLLIN, [this, serial](uint32_t) { OnReport(serial); });
  if (watch) entry.watch = std::move(*watch);
  if (!watch) log::Warn("disk of {}: its measurement is read at its end only: {}", machine.id(), watch.error().message);
  return {};
}

void DiskLimits::OnReport(uint64_t serial) {
  auto it = entries_.find(serial);
  if (it == entries_.end() || !it->second.report) return;
  Entry& entry = it->second;
  auto found = ReadMeasurement(entry.report.get());
  // Nothing to read: the process has closed its end of the pipe, and the end of the job follows.
  if (!found) return entry.watch.Reset();
  const Machine& machine = *entry.machine;
  log::Debug("disk of {}: {} bytes are its snapshot's, {} ms", machine.id(), found->inherited, found->took_ms);
  if (auto set = entry.machine->disk().Measured(*found); !set)
    log::Warn("disk of {}: {}", machine.id(), set.error().message);
}

void DiskLimits::OnMeasured(uint64_t serial) {
  auto it = entries_.find(serial);
  if (it == entries_.end() || !it->second.report) return;
  OnReport(serial);
  StopMeasuring(it->second);
  Machine& machine = *it->second.machine;
  if (auto set = machine.disk().EndMeasuring(os::BootTimeMs()); !set)
    log::Warn("disk of {}: {}", machine.id(), set.error().message);
}

void DiskLimits::StopMeasuring(Entry& entry) {
  if (!entry.report) return;
  jobs_->Cancel(SubjectOf(*entry.machine));
  entry.watch.Reset();
  entry.report.Reset();
}

}  // namespace sandbar::spawner
