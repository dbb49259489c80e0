// Finds how much of its snapshot a machine's slot still has (os::InheritedBytes): a process, because that takes as long
// as there are files. It goes on as long as each look finds less than the one before, because a guest is writing then,
// and says each time what it found. Single thread; nothing here waits.
//
//   SB_TRY(auto job, MeasureJob::Start(facts, group, slot, true));
//   Fd said = job->TakeReport();  … readable: ReadMeasurement(said.get()) …
#pragma once

#include <memory>
#include <optional>

#include "base/fd.h"
#include "base/result.h"
#include "spawner/disk.h"
#include "spawner/disk_room.h"
#include "spawner/job.h"

namespace sandbar::spawner {

class MeasureJob final : public Job {
 public:
  // `write_out`: what is in memory only goes to the disk first.
  static Result<std::unique_ptr<MeasureJob>> Start(JobFacts facts, JobGroup group, const DiskSlot& slot,
                                                   bool write_out);
  Result<> Finish() override;
  // Once.
  Fd TakeReport() { return std::move(said_); }

 private:
  using Job::Job;
  Fd said_;
};

// The latest that it said; nothing when there is nothing new.
std::optional<Measurement> ReadMeasurement(int report);

}  // namespace sandbar::spawner
