// The disk of one machine: its slot, whose bytes the slot holds, and the limit of what the machine writes. The slot is
// one of the machine's resources; MachineDisk uses it while the machine has them. Part of a Machine, which outlives no
// Disk. Single thread; no call waits.
//
//   MachineDisk disk(host->disk.get(), &resources.disk);
//   SB_TRYV(disk.Begin(owner, launch->block()));
//   SB_TRYV(disk.SetLimit(bytes, 0));
//   SB_TRYV(disk.Adopt(std::move(copy), inherited));     // the machine begins with a copy of a snapshot
//   … the machine has ended …
//   SB_TRYV(disk.Publish("snapshot_1"));
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "spawner/disk/disk.h"
#include "spawner/disk/disk_limit_watch.h"

namespace sandbar::spawner {

class MachineDisk {
 public:
  // `slot` is filled before the first call, and stays where it is.
  MachineDisk(Disk* disk, DiskSlot* slot) : disk_(disk), slot_(slot) {}
  MachineDisk(const MachineDisk&) = delete;
  MachineDisk& operator=(const MachineDisk&) = delete;

  const DiskSlot& slot() const { return *slot_; }
  // The first owner, whose space was checked already. `block`: the slot holds a block device, whose size is its limit.
  Result<> Begin(const DiskOwner& owner, bool block);
  // The bytes of the slot count for this owner from now on. For machines that were booted ahead, without a project.
  Result<> Assign(const DiskOwner& owner);
  // kNoSpace, kQuota: the store or the owner's budget has fewer free bytes.
  Result<> CheckSpace(uint64_t bytes) const { return disk_->CheckSpace(owner_, bytes); }
  // 0: none. `inherited`: how much of the limit the snapshot takes that the machine began with.
  Result<> SetLimit(uint64_t limit, uint64_t inherited);
  // The copy of a snapshot takes the place of the empty slot, with the limit that was set.
  Result<> Adopt(SlotCopy copy, uint64_t inherited);
  Result<uint64_t> Usage() const { return disk_->Usage(*slot_); }

  // The watch over the limit.
  DiskLimitWatch& limit_watch() { return limit_watch_; }
  Result<> Measured(const Measurement& found) { return limit_watch_.Measured(disk_, *slot_, found); }
  Result<> EndMeasuring(int64_t now) { return limit_watch_.Ended(disk_, *slot_, now); }

  // Writes down how many bytes the slot holds. Call it before Publish.
  Result<> Remember() const;
  // The slot becomes that snapshot, and the machine has none any more. When it fails the slot stays.
  Result<> Publish(const std::string& snapshot);

 private:
  Disk* disk_;
  DiskSlot* slot_;
  DiskOwner owner_;
  bool block_ = false;
  uint64_t limit_ = 0;
  DiskLimitWatch limit_watch_;
};

}  // namespace sandbar::spawner
