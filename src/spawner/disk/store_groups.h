// Who may take how much of the store. The kernel enforces three levels of btrfs's quota groups at every write:
//
//   0/<subvolume>  a machine, a snapshot or a drive, with a limit of its own
//   1/<project>    all that one project has: its budget
//   2/0            all projects together: what is free, less a reserve that no guest can take
//
// Limits are ceilings: no space is reserved for anybody. The limit of 2/0 follows the free space of the store and of
// the disk below it, so that neither runs out. Guests get EDQUOT then, and the spawner goes on working. Single thread.
//
//   StoreGroups groups(root.get(), std::move(image), mode);
//   groups.Start();
//   SB_TRYV(groups.CheckSpace(owner, 0));            // kNoSpace: the store is full; kQuota: the project is
//   SB_TRY(uint64_t group, groups.Join(id, owner));
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>

#include "base/fd.h"
#include "base/result.h"
#include "os/btrfs.h"
#include "spawner/disk/disk.h"

namespace sandbar::spawner {

// The size of the store, and what guests may still take of it.
struct StoreSpace {
  uint64_t total = 0;
  uint64_t left = 0;  // for all guests together
};

// `host_free` and `host_total` are of the disk that the image lies on, `backed` is what the image takes of it.
StoreSpace SpaceOf(const os::BtrfsSpace& space, uint64_t host_free, uint64_t host_total, uint64_t backed);

class StoreGroups {
 public:
  // `root` is open as long as this lives; `image` is the file that holds the store.
  StoreGroups(int root, Fd image, os::QuotaMode mode) : root_(root), image_(std::move(image)), mode_(mode) {}

  // Finds the groups of an earlier process, and reserves space for metadata.
  Result<> Start();
  // Puts a subvolume into its project's group, out of any other one; returns that group.
  Result<uint64_t> Join(uint64_t subvolume, const DiskOwner& owner);
  // The group that a copy of this subvolume belongs into; 0: none. `fs` is any descriptor in the store.
  static uint64_t GroupForCopy(int fs, uint64_t subvolume, os::QuotaMode mode);
  // Puts one subvolume where the other is.
  Result<> JoinLike(uint64_t subvolume, uint64_t like);
  Result<> CheckSpace(const DiskOwner& owner, uint64_t wanted) const;
  // What a subvolume in that project's group holds, and what may still be written to it. `group` 0: in none.
  Result<DiskRoom> Room(uint64_t subvolume, uint64_t group) const;
  // Lets the limit of all guests follow what is free. Cheap; to be called every second or so.
  void Adjust();
  // The subvolume was destroyed.
  void Gone(uint64_t subvolume);
  // One piece of background work; true when there may be more.
  bool Housekeep();
  bool backlog() const { return !stale_.empty(); }
  os::QuotaMode mode() const { return mode_; }

 private:
  // False while the project still has something.
  bool TryRemove(uint64_t project);
  Result<uint64_t> Ensure(const DiskOwner& owner);
  Result<StoreSpace> Space() const;
  Result<> FindStale();
  Result<> KeepMetadataSpace();
  uint64_t Budget(const DiskOwner& owner) const { return owner.bytes != 0 ? owner.bytes : total_ / 2; }

  int root_;
  Fd image_;
  os::QuotaMode mode_;
  uint64_t total_ = 0;
  uint64_t limit_ = 0;                     // of 2/0
  std::map<uint64_t, uint64_t> projects_;  // groups that are there for sure, with their limits
  std::deque<uint64_t> stale_;             // groups of subvolumes that are being freed
  std::set<uint64_t> perhaps_empty_;       // groups of projects
};

}  // namespace sandbar::spawner
