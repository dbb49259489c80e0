#include "spawner/machines/machine_disk.h"

#include <utility>

namespace sandbar::spawner {

Result<> MachineDisk::Begin(const DiskOwner& owner, bool block) {
  block_ = block;
  owner_ = owner;
  return disk_->Assign(*slot_, owner);
}

Result<> MachineDisk::Assign(const DiskOwner& owner) {
  SB_TRYV(disk_->CheckSpace(owner, 0));
  SB_TRYV(disk_->Assign(*slot_, owner));
  owner_ = owner;
  return {};
}

Result<> MachineDisk::SetLimit(uint64_t limit, uint64_t inherited) {
  SB_TRYV(limit_watch_.SetLimit(disk_, *slot_, limit, block_ ? 0 : inherited));
  limit_ = limit;
  return {};
}

Result<> MachineDisk::Adopt(SlotCopy copy, uint64_t inherited) {
  SB_TRYV(disk_->Adopt(*slot_, std::move(copy)));
  // The size of a block device is its limit.
  if (block_) return limit_watch_.SetLimit(disk_, *slot_, limit_, 0);
  return limit_watch_.Begin(disk_, *slot_, limit_, inherited);
}

Result<> MachineDisk::Remember() const {
  if (block_) return {};
  return limit_watch_.Remember(*disk_, *slot_);
}

Result<> MachineDisk::Publish(const std::string& snapshot) {
  SB_TRYV(disk_->Publish(*slot_, snapshot));
  *slot_ = {};
  return {};
}

}  // namespace sandbar::spawner
