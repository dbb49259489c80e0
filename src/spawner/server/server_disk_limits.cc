// Disk limits of machines that began from a snapshot. A machine that comes near its limit is measured, because old
// files that it deleted or overwrote no longer count.
#include <sys/epoll.h>

#include <algorithm>

#include "base/log.h"
#include "os/process.h"
#include "spawner/jobs/measure_job.h"
#include "spawner/server/server.h"

namespace sandbar::spawner {
namespace {

// Looks that are due soon are made in one pass.
constexpr int64_t kTogetherMs = 50;
// A measurement that could not begin counts as one that took so long.
constexpr int64_t kFailedMs = 500;

std::string SubjectOf(const std::string& machine) {
  return "the disk of " + machine;
}

}  // namespace

void Server::WatchDiskLimits(int64_t now, int64_t* next) {
  if (stopping_) return;
  if (now >= disk_limits_at_) {
    disk_limits_at_ = 0;
    for (auto& [serial, slot] : slots_) {
      if (slot.machine->state() != Machine::State::kRunning || !slot.machine->disk_limit().watched()) continue;
      if (now >= slot.look_at) {
        DiskLimitWatch& limit = slot.machine->disk_limit();
        slot.look_at = std::max(limit.Look(now), now + kTogetherMs);
        if (limit.wants()) {
          // kTooMany: all places for measurements are taken; the next look tries again.
          auto begun = StartMeasuring(slot);
          if (!begun && begun.error().code != Code::kTooMany) {
            log::Warn("disk of {}: {}", slot.machine->id(), begun.error().message);
            limit.Began(now);
            if (auto ended = slot.machine->EndMeasuring(now + kFailedMs); !ended)
              log::Warn("disk of {}: {}", slot.machine->id(), ended.error().message);
          }
        }
      }
      if (disk_limits_at_ == 0 || slot.look_at < disk_limits_at_) disk_limits_at_ = slot.look_at;
    }
    if (disk_limits_at_ != 0) disk_limits_at_ = std::max(disk_limits_at_, now + kTogetherMs);
  }
  if (disk_limits_at_ != 0 && (*next == 0 || disk_limits_at_ < *next)) *next = disk_limits_at_;
}

Result<> Server::StartMeasuring(Slot& slot) {
  JobFacts facts{
      .kind = JobKind::kMeasure, .job_owner = slot.machine->job_owner(), .subjects = {SubjectOf(slot.machine->id())}};
  SB_TRYV(jobs_.Admit(facts));
  SB_TRY(Group group, GroupFor(JobKind::kMeasure));
  DiskLimitWatch& limit = slot.machine->disk_limit();
  auto job = MeasureJob::Start(std::move(facts), group.get(), slot.machine->disk_slot(), limit.unwritten());
  if (!job) {
    GiveBack(std::move(group));
    return std::unexpected(std::move(job).error());
  }
  Fd said = (*job)->TakeReport();
  auto then = [this, serial = slot.serial](Job&, const Result<>&) {
    auto it = slots_.find(serial);
    if (it == slots_.end() || !it->second.measured) return;
    OnMeasured(it->second);
    EndMeasuring(it->second);
    Machine& machine = *it->second.machine;
    if (auto set = machine.EndMeasuring(os::BootTimeMs()); !set)
      log::Warn("disk of {}: {}", machine.id(), set.error().message);
  };
  SB_TRYV(AddJob(std::move(*job), std::move(group), then));
  limit.Began(os::BootTimeMs());
  slot.measured = std::move(said);
  // Without the watch, the report is read when the job ends.
  if (auto watched = Watch(slot.measured.get(), EPOLLIN, Key(Kind::kMeasured, slot.serial)); !watched)
    log::Warn("disk of {}: its measurement is read at its end only: {}", slot.machine->id(), watched.error().message);
  return {};
}

void Server::OnMeasured(Slot& slot) {
  auto found = slot.measured ? ReadMeasurement(slot.measured.get()) : std::nullopt;
  if (!found) {
    // The process has closed its end of the pipe: the end of the job follows.
    if (slot.measured) Unwatch(slot.measured.get());
    return;
  }
  log::Debug("disk of {}: {} bytes are its snapshot's, {} ms", slot.machine->id(), found->inherited, found->took_ms);
  if (auto set = slot.machine->Measured(*found); !set)
    log::Warn("disk of {}: {}", slot.machine->id(), set.error().message);
}

void Server::EndMeasuring(Slot& slot) {
  if (!slot.measured) return;
  jobs_.Cancel(SubjectOf(slot.machine->id()));
  Unwatch(slot.measured.get());
  slot.measured.Reset();
}

}  // namespace sandbar::spawner
