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

void Server::WatchRooms(int64_t now, int64_t* next) {
  if (stopping_) return;
  if (now >= rooms_at_) {
    rooms_at_ = 0;
    for (auto& [serial, slot] : slots_) {
      if (slot.machine->state() != Machine::State::kRunning || !slot.machine->room().watched()) continue;
      if (now >= slot.look_at) {
        DiskRoom& room = slot.machine->room();
        slot.look_at = std::max(room.Look(now), now + kTogetherMs);
        if (room.wants()) {
          // kTooMany: all places for measurements are taken; the next look tries again.
          auto begun = StartMeasuring(slot);
          if (!begun && begun.error().code != Code::kTooMany) {
            log::Warn("disk of {}: {}", slot.machine->id(), begun.error().message);
            room.Began(now);
            if (auto ended = slot.machine->EndMeasuring(now + kFailedMs); !ended)
              log::Warn("disk of {}: {}", slot.machine->id(), ended.error().message);
          }
        }
      }
      if (rooms_at_ == 0 || slot.look_at < rooms_at_) rooms_at_ = slot.look_at;
    }
    if (rooms_at_ != 0) rooms_at_ = std::max(rooms_at_, now + kTogetherMs);
  }
  if (rooms_at_ != 0 && (*next == 0 || rooms_at_ < *next)) *next = rooms_at_;
}

Result<> Server::StartMeasuring(Slot& slot) {
  JobFacts facts{
      .kind = JobKind::kMeasure, .owner = slot.machine->project(), .subjects = {SubjectOf(slot.machine->id())}};
  SB_TRYV(jobs_.Admit(facts));
  SB_TRY(Group group, GroupFor(JobKind::kMeasure));
  DiskRoom& room = slot.machine->room();
  auto job = MeasureJob::Start(std::move(facts), group.get(), slot.machine->disk_slot(), room.unwritten());
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
  room.Began(os::BootTimeMs());
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
