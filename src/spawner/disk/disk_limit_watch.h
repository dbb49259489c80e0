// The disk limit of a machine whose slot began as a copy of a snapshot. The kernel counts the bytes that the machine
// writes, not those that it still shares with the snapshot. So the limit of its own bytes is the sandbox's limit less
// the shared bytes. These become fewer when the machine deletes or overwrites old files. DiskLimitWatch decides when to
// read the kernel's figures (Look), and when to measure the shared bytes, which takes as long as there are files
// (wants, MeasureJob). Single thread; no call waits.
//
//   DiskLimitWatch watch;
//   SB_TRYV(watch.Begin(disk, slot, limit, inherited));
//   int64_t next = watch.Look(now);  if (watch.wants()) … a MeasureJob …
//   watch.Began(now);  watch.Measured(disk, slot, {bytes, took_ms});  watch.Ended(disk, slot, now);
#pragma once

#include <cstdint>

#include "base/result.h"
#include "os/btrfs_extents.h"
#include "spawner/disk/disk.h"

namespace sandbar::spawner {

// What a MeasureJob found: how many bytes a slot still shares with its snapshot.
struct Measurement {
  uint64_t inherited = 0;
  uint64_t took_ms = 0;
};

// Decides when to look again and when to measure. Works on figures only, so tests need no disk.
class DiskLimitPolicy {
 public:
  // `limit` is the sandbox's, `own` the limit of what the machine writes.
  void Set(uint64_t limit, uint64_t own) {
    limit_ = limit;
    own_ = own;
  }
  // Returns when the next look is due.
  int64_t Look(int64_t now, const os::Held& held);
  bool wants() const { return wants_; }
  // A measurement has begun, or was to begin. It reports when it has found something, and ends.
  void Began(int64_t now);
  void Gained(uint64_t bytes, uint64_t took_ms);
  void Ended(int64_t now);

 private:
  uint64_t limit_ = 0, own_ = 0;
  os::Held seen_, measured_;  // at the last look, and at the last one that led to a measurement
  bool wants_ = false, running_ = false, known_ = false, reported_ = false;
  uint64_t gained_ = 0, took_ms_ = 0;  // of the measurement that runs
  int64_t wait_ms_ = 0, not_before_ = 0, began_ = 0, ended_ = 0;
};

class DiskLimitWatch {
 public:
  // The slot is a copy, of which so many bytes are the snapshot's by the server's figure, which may be far from true.
  // Sets its limit; 0: none.
  Result<> Begin(Disk* disk, const DiskSlot& slot, uint64_t limit, uint64_t inherited);
  // Another limit. `inherited` is the server's figure: ignored once the machine was measured.
  Result<> SetLimit(Disk* disk, const DiskSlot& slot, uint64_t limit, uint64_t inherited);
  bool watched() const { return static_cast<bool>(meter_); }
  // Writes down how many bytes the slot holds, before it becomes a snapshot: for the copies of that snapshot, until
  // they are measured. The server's figure adds up files, and a guest can make small files that hold large extents.
  Result<> Remember(const Disk& disk, const DiskSlot& slot) const;
  // Ends the watch: the machine is being destroyed.
  void End() { meter_ = {}; }

  int64_t Look(int64_t now);
  bool wants() const { return policy_.wants(); }
  // Whether much of what the machine wrote is in memory only: it has not freed the old blocks yet.
  bool unwritten() const;
  void Began(int64_t now) { policy_.Began(now); }
  Result<> Measured(Disk* disk, const DiskSlot& slot, const Measurement& found);
  Result<> Ended(Disk* disk, const DiskSlot& slot, int64_t now);

 private:
  Result<> Apply(Disk* disk, const DiskSlot& slot);

  os::QuotaMeter meter_;
  DiskLimitPolicy policy_;
  os::Held held_;
  uint64_t limit_ = 0, inherited_ = 0, found_ = 0;  // the limit was set with `inherited_`; `found_` was measured last
  uint64_t held_before_ = 0;                        // what Remember wrote down of the snapshot
  int64_t generation_at_ = 0;                       // when to read the generation again
  bool measured_ = false;
};

}  // namespace sandbar::spawner
