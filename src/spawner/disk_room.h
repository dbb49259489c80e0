// The disk limit of a machine whose slot began as a copy of a snapshot. The kernel counts what the machine writes, not
// what it still has of the snapshot, so its own limit is the sandbox's limit less the latter. That becomes less when
// old files are deleted or written anew. This says when to look, and when looking at all files is worth it. Single
// thread; nothing here waits, and nothing takes longer when there are more files.
//
//   DiskRoom room;
//   SB_TRYV(room.Begin(disk, slot, limit, inherited));
//   int64_t next = room.Look(now);  if (room.wants()) … a MeasureJob …
//   room.Began();  room.Measured(disk, slot, {bytes, took_ms});  room.Ended(disk, slot, now);
#pragma once

#include <cstdint>

#include "base/result.h"
#include "os/btrfs_extents.h"
#include "spawner/disk.h"

namespace sandbar::spawner {

// One look at all that a slot still has of its snapshot.
struct Measurement {
  uint64_t inherited = 0;
  uint64_t took_ms = 0;
};

// When to look again, and when to measure: figures only, so that it can be tested without a disk.
class RoomPolicy {
 public:
  // `limit` is the sandbox's, `own` the limit of what the machine writes.
  void Set(uint64_t limit, uint64_t own) {
    limit_ = limit;
    own_ = own;
  }
  // Returns when the next look is due.
  int64_t Look(int64_t now, const os::Held& held);
  bool wants() const { return wants_; }
  // A measurement has begun; it reports at least once, and ends.
  void Began();
  void Gained(uint64_t bytes, uint64_t took_ms);
  void Ended(int64_t now);

 private:
  uint64_t limit_ = 0, own_ = 0;
  os::Held seen_, judged_;  // at the last look, and at the last one that led to a measurement
  bool wants_ = false, running_ = false, known_ = false;
  uint64_t gained_ = 0, took_ms_ = 0;  // of the measurement that runs
  int64_t wait_ms_ = 0, not_before_ = 0, ended_ = 0;
};

class DiskRoom {
 public:
  // The slot is a copy, of which so many bytes are the snapshot's. Sets its limit; 0: none.
  Result<> Begin(Disk* disk, const DiskSlot& slot, uint64_t limit, uint64_t inherited);
  // Other figures of whoever configures the machine. What was measured is known better.
  Result<> SetLimit(Disk* disk, const DiskSlot& slot, uint64_t limit, uint64_t inherited);
  bool watched() const { return static_cast<bool>(meter_); }
  // It runs no longer, or its disk is another's.
  void End() { meter_ = {}; }

  int64_t Look(int64_t now);
  bool wants() const { return policy_.wants(); }
  // Much of what it wrote is in memory only, and so has not taken the place of anything yet.
  bool unwritten() const;
  void Began() { policy_.Began(); }
  Result<> Measured(Disk* disk, const DiskSlot& slot, const Measurement& found);
  Result<> Ended(Disk* disk, const DiskSlot& slot, int64_t now);

 private:
  Result<> Apply(Disk* disk, const DiskSlot& slot);

  os::QuotaMeter meter_;
  RoomPolicy policy_;
  os::Held held_;
  uint64_t limit_ = 0, inherited_ = 0, found_ = 0;  // what the limit was set by, and what was found last
  int64_t generation_at_ = 0;                       // when that is read again
  bool measured_ = false;
};

}  // namespace sandbar::spawner
