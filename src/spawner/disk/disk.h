// The machines' disk: where machines write, and what stays when they are gone. There are two kinds: subvolumes with
// quotas on a btrfs image file, and plain directories without limits. All of it is on a mount that only this process
// sees (nosuid,nodev,noexec: a setuid file of a guest is none on the host). One role per interface; Disk is all of
// them. Single thread.
//
//   SB_TRY(auto disk, OpenBtrfsDisk({.data = data.get(), .mount_point = "/run/sandbar/mnt/store"}));
//   SB_TRY(DiskSlot slot, disk->Create());       // slot.path holds upper/ and work/
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"

namespace sandbar::spawner {

// Whose bytes a slot or a drive holds: the number of a project, which the daemon chose, and the project's budget.
struct DiskOwner {
  uint64_t project = 0;  // 0: no project yet
  uint64_t bytes = 0;    // what the project may have in the store; 0: half of the store
};

// The place of one machine: a directory with upper/ (the files that it wrote) and work/ (overlay's scratch space).
struct DiskSlot {
  std::string name;
  std::string path;
  uint64_t id = 0;
  uint64_t group = 0;  // the quota group of its owner; 0: none
};

// A copy of a slot that is being made: what the process that makes it needs, and the slot that it will be.
struct SlotCopy {
  Fd source, parent;
  DiskSlot slot;
};

// How many bytes a machine may write itself when its limit is `limit` (0: none) and it shares `inherited` bytes with a
// snapshot.
uint64_t OwnLimit(uint64_t limit, uint64_t inherited);

// What a slot or a drive holds, and what may still be written to it: by its own limit, its owner's budget and the free
// space of the store.
struct DiskRoom {
  uint64_t limit = 0;  // of what it writes itself; 0: none
  uint64_t held = 0;
  uint64_t left = 0;
};

class SlotStore {
 public:
  virtual ~SlotStore() = default;
  virtual Result<DiskSlot> Create() = 0;
  // Only the name goes, as in all functions that remove something; Tidy frees the space.
  virtual Result<> Destroy(const DiskSlot& slot) = 0;
  // kNoSpace when the store has less free space than `wanted`, kQuota when the owner's budget has.
  virtual Result<> CheckSpace(const DiskOwner& owner, uint64_t wanted) const = 0;
  // The slot's bytes, those that it has already included, count for this owner from now on.
  virtual Result<> Assign(DiskSlot& slot, const DiskOwner& owner) = 0;
  // The slot or drive at `path` gets the owner of the one at `like`.
  virtual Result<> AssignLike(const std::string& path, const std::string& like) = 0;
  // Adjusts the limit of all guests to the free space. Call it about once a second.
  virtual void Adjust() = 0;
  // Whether a slot can begin as a copy of a snapshot that shares its blocks. Such a slot holds all files of the
  // snapshot, so the snapshot is no layer below it. Without copies, snapshots are stacked.
  virtual bool copies_snapshots() const = 0;
  // Prepares such a copy for this slot. MakeStart makes it in a process of its own, Adopt puts it in the place of the
  // empty slot. Limits have to be set again then.
  virtual Result<SlotCopy> BeginStart(const DiskSlot& slot, const std::string& snapshot) const = 0;
  virtual Result<> Adopt(DiskSlot& slot, SlotCopy copy) = 0;
  // Removes a copy that nobody adopted or published. Not an error when it was never made.
  virtual void DropCopy(const SlotCopy& copy) = 0;
  // 0: no limit. `inherited`: how many bytes the slot shares with the snapshot that it was copied from.
  virtual Result<> SetLimit(const DiskSlot& slot, uint64_t bytes, uint64_t inherited) = 0;
  // Whether the kernel counts only the bytes that a copy writes. Then SetLimit needs `inherited`.
  virtual bool limits_own_bytes() const = 0;
  virtual Result<uint64_t> Usage(const DiskSlot& slot) const = 0;
  // Of this moment. kUnsupported where nothing is limited.
  virtual Result<DiskRoom> Room(const DiskSlot& slot) const = 0;
};

// Snapshots are slots that no machine writes to any more.
class SnapshotStore {
 public:
  virtual ~SnapshotStore() = default;
  // Renames the slot to a snapshot, at the same cost for any size. Nothing may be mounted on the slot any more. The
  // snapshot is settling until Tidy has sealed it and removed what lies beside upper/.
  virtual Result<> Publish(const DiskSlot& slot, const std::string& snapshot) = 0;
  virtual bool settling(const std::string& snapshot) const = 0;
  // The directory with the snapshot's files; kNotFound when there is no such snapshot.
  virtual Result<std::string> SnapshotLayer(const std::string& snapshot) const = 0;
  // In the order of names: at most `max` names after `after`.
  virtual Result<std::vector<std::string>> ListSnapshots(const std::string& after, size_t max) const = 0;
  // The manifest lists what every entry of the snapshot is. It lies beside the snapshots, where no guest can write.
  // kNotFound when it was never written. `fresh`: an empty one.
  virtual Result<Fd> OpenManifest(const std::string& snapshot, bool fresh) const = 0;
  // No machine may use it as a layer. Not an error when there is no such snapshot.
  virtual Result<> RemoveSnapshot(const std::string& snapshot) = 0;
};

// The memory of snapshots that were taken of running machines: a file beside the snapshots, where only root can write.
// It counts for the owner of the machine's slot, and is removed with its snapshot.
class MemoryStore {
 public:
  virtual ~MemoryStore() = default;
  // An empty file. kConflict when the snapshot exists, kUnsupported where slots cannot be copied.
  virtual Result<Fd> NewMemory(const std::string& snapshot, const DiskSlot& slot) = 0;
  // Prepares a copy of a slot in use; CopySlot makes it.
  virtual Result<SlotCopy> BeginCopy(const DiskSlot& slot) const = 0;
  // The copy and the memory become that snapshot.
  virtual Result<> PublishCopy(SlotCopy& copy, const std::string& snapshot) = 0;
  // Removes memory that was not published. Not an error when there is none.
  virtual void DropMemory(const std::string& snapshot) = 0;
  // kNotFound when the snapshot has no memory.
  virtual Result<Fd> OpenMemory(const std::string& snapshot) const = 0;
  // The snapshot stays.
  virtual void RemoveMemory(const std::string& snapshot) = 0;
};

// Drives are directories that outlive machines, each with upper/ and work/ like a slot. Drive snapshots are read-only
// copies of drives, each with upper/. Both share one space of names.
class DriveStore {
 public:
  virtual ~DriveStore() = default;
  // Makes the drive or changes its limit. kUnsupported when this disk cannot enforce the limit. An owner without a
  // project leaves the owner of an existing drive as it is.
  virtual Result<> CreateDrive(const std::string& drive, uint64_t max_bytes, const DiskOwner& owner) = 0;
  // The directory of a drive or a drive snapshot; kNotFound when there is none.
  virtual Result<std::string> DrivePath(const std::string& name) const = 0;
  // Like Room of a slot.
  virtual Result<DiskRoom> DriveRoom(const std::string& drive) const = 0;
  virtual Result<std::vector<std::string>> ListDrives(const std::string& after, size_t max) const = 0;
  // Takes as long as there are bytes to write or copy: call it in a process of its own, which needs no descriptor but
  // drives_fd(). The drive snapshot appears whole or not at all.
  virtual Result<> SnapshotDrive(const std::string& drive, const std::string& snapshot) const = 0;
  virtual int drives_fd() const = 0;
  // The drive `by` takes the name and the limit of `drive` in one step. The files of `drive` are removed.
  virtual Result<> ReplaceDrive(const std::string& drive, const std::string& by) = 0;
  // No machine may use it. Not an error when there is none.
  virtual Result<> RemoveDrive(const std::string& name) = 0;
};

// Work that nobody waits for.
class DiskUpkeep {
 public:
  virtual ~DiskUpkeep() = default;
  // Frees the space of what was removed and seals what was published. Takes as long as there are files and bytes: call
  // it in a process of its own, between BeginTidy and EndTidy; the process needs no descriptors but these.
  virtual Result<> Tidy() const = 0;
  virtual std::vector<int> tidy_fds() const = 0;
  virtual bool untidy() const = 0;
  virtual bool unsealed() const = 0;  // untidy, and there is something to seal
  virtual void BeginTidy() = 0;
  virtual void EndTidy(bool done) = 0;
  // Does one bounded piece of background work; true when there may be more. Call it when the loop is idle.
  virtual bool Housekeep() = 0;
  // Background work is left, whether or not it can go on now.
  virtual bool backlog() const = 0;
};

class Disk : public SlotStore, public SnapshotStore, public MemoryStore, public DriveStore, public DiskUpkeep {
 public:
  virtual std::string Describe() const = 0;
  // A directory for read-only layers that the spawner makes itself; emptied at start.
  virtual std::string site_path() const = 0;
};

// Makes a prepared copy, which shares all blocks with the original. The original's bytes are on disk then. Call it in a
// process of its own.
Result<> CopySlot(const SlotCopy& copy);
// The same, ready for a machine to begin with.
Result<> MakeStart(const SlotCopy& copy);

struct DiskOptions {
  int data = -1;            // the data directory
  std::string mount_point;  // an empty directory in the private mount namespace
  uint64_t pool_bytes = 0;
  bool force_full_quota = false;
};

Result<std::unique_ptr<Disk>> OpenBtrfsDisk(const DiskOptions& options);
Result<std::unique_ptr<Disk>> OpenPlainDisk(const DiskOptions& options);

}  // namespace sandbar::spawner
