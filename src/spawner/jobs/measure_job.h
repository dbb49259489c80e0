// Measures how many bytes a machine's slot still shares with its snapshot (os::InheritedBytes), in a process of its
// own, because that takes as long as there are files. With `write_out` the process measures again and again, for
// seconds at most, as long as the sum goes down; it reports each new sum. Single thread; no call waits.
//
//   SB_TRY(auto job, MeasureJob::Start(facts, group, slot, true));
//   Fd said = job->TakeReport();  … readable: ReadMeasurement(said.get()) …
#pragma once

#include <memory>
#include <optional>

#include "base/fd.h"
#include "base/result.h"
#include "spawner/disk/disk.h"
#include "spawner/disk/disk_limit_watch.h"
#include "spawner/jobs/job.h"

namespace sandbar::spawner {

class MeasureJob final : public Job {
 public:
  // `write_out`: has old files written to the disk meanwhile, and goes on as long as that frees old blocks.
  static Result<std::unique_ptr<MeasureJob>> Start(JobFacts facts, JobGroup group, const DiskSlot& slot,
                                                   bool write_out);
  Result<> Finish() override;
  // The read end of the reports. Call it once.
  Fd TakeReport() { return std::move(said_); }

 private:
  using Job::Job;
  Fd said_;
};

// The latest report; std::nullopt when there is no new one.
std::optional<Measurement> ReadMeasurement(int report);

}  // namespace sandbar::spawner
