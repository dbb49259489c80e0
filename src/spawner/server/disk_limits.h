// Enforces the disk limits of machines that began as a copy of a snapshot. It looks at the figures of each of them now
// and then. A machine that comes near its limit is measured (jobs/measure_job.h), because old files that it deleted or
// overwrote no longer count. Single thread; no call waits.
#pragma once

#include <cstdint>
#include <map>

#include "base/event_loop.h"
#include "base/fd.h"
#include "base/result.h"
#include "spawner/jobs/jobs.h"
#include "spawner/machines/machine.h"

namespace sandbar::spawner {

class DiskLimits {
 public:
  DiskLimits(EventLoop* loop, Jobs* jobs) : loop_(loop), jobs_(jobs) {}

  // The machine has started. It outlives the call to End.
  void Begin(uint64_t serial, Machine* machine);
  // The machine is being destroyed.
  void End(uint64_t serial);
  // Looks at the machines that are due. Lowers `next` to the time of the next look; 0: never.
  void Look(int64_t now, int64_t* next);

 private:
  struct Entry {
    Machine* machine = nullptr;
    Fd report;      // of the MeasureJob that works on its disk
    FdWatch watch;  // of the report
    int64_t look_at = 0;
  };
  void LookAt(uint64_t serial, Entry& entry, int64_t now);
  Result<> StartMeasuring(uint64_t serial, Entry& entry);
  void OnReport(uint64_t serial);
  void OnMeasured(uint64_t serial);
  void StopMeasuring(Entry& entry);

  EventLoop* loop_;
  Jobs* jobs_;
  std::map<uint64_t, Entry> entries_;  // by the machine's serial
  int64_t at_ = 0;                     // when the next look is due; 0: now
};

}  // namespace sandbar::spawner
