// Where machines write: one directory each with upper/ and work/, and the snapshots that stay when machines go: upper
// directories that nobody writes to any more. All on a mount that only this process sees
// (nosuid,nodev,noexec: a setuid file that a guest leaves is not one on the host). Two kinds: subvolumes with quotas on
// a btrfs image file, or plain directories without limits. Single thread.
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

// Whose bytes they are: a project's number, which the daemon chose, and how many bytes it may have in the store.
struct DiskOwner {
  uint64_t project = 0;  // 0: nobody's yet
  uint64_t bytes = 0;    // 0: half of the store
};

struct DiskSlot {
  std::string name;
  std::string path;
  uint64_t id = 0;
  uint64_t group = 0;  // of its owner, where there are such
};

// A copy of a slot in the making: what the process that makes it needs, and the slot that it will be.
struct SlotCopy {
  Fd source, parent;
  DiskSlot slot;
};

// How many bytes a machine may write itself when its limit is `limit` (0: none) and it shares `inherited` bytes with a
// snapshot.
uint64_t OwnLimit(uint64_t limit, uint64_t inherited);

class Disk {
 public:
  virtual ~Disk() = default;
  virtual std::string Describe() const = 0;
  // Directory for read-only layers that we make ourselves; emptied at start.
  virtual std::string site_path() const = 0;
  virtual Result<DiskSlot> Create() = 0;
  // kNoSpace when the server's disk has no room for this much more, kQuota when the owner's budget has not.
  virtual Result<> CheckSpace(const DiskOwner& owner, uint64_t wanted) const = 0;
  // From now on the slot's bytes, those that are there included, are this owner's.
  virtual Result<> Assign(DiskSlot& slot, const DiskOwner& owner) = 0;
  // The slot, or the drive, at `path` belongs to whom the one at `like` does.
  virtual Result<> AssignLike(const std::string& path, const std::string& like) = 0;
  // What is free has changed, perhaps by others: to be called every second or so.
  virtual void Adjust() = 0;
  // Whether a slot can begin as a copy of a snapshot that shares everything with it. Such a slot holds all that the
  // snapshot does: the snapshot is no layer below it. Otherwise snapshots are stacked.
  virtual bool copies_snapshots() const = 0;
  // Such a copy: MakeStart makes it, in a process of its own. Adopt puts it in the place of this slot, which is empty;
  // limits have to be set again.
  virtual Result<SlotCopy> BeginStart(const DiskSlot& slot, const std::string& snapshot) const = 0;
  virtual Result<> Adopt(DiskSlot& slot, SlotCopy copy) = 0;
  // 0: none. `inherited` of these bytes it shares with the snapshot that it was copied from.
  virtual Result<> SetLimit(const DiskSlot& slot, uint64_t bytes, uint64_t inherited) = 0;
  // Whether the kernel counts only the bytes that a copy writes. Then SetLimit needs `inherited`.
  virtual bool limits_own_bytes() const = 0;
  virtual Result<uint64_t> Usage(const DiskSlot& slot) const = 0;
  // Only a name goes, here and wherever something is removed; the rest is Tidy's.
  virtual Result<> Destroy(const DiskSlot& slot) = 0;

  // Makes the slot's upper/ a snapshot, by a rename: nothing may be mounted on it any more. Costs the same at any size.
  // Until Tidy has been there, it is settling: there may be more beside upper/, and it is not sealed.
  virtual Result<> Publish(const DiskSlot& slot, const std::string& snapshot) = 0;
  // The layer's directory; kNotFound when there is no such snapshot.
  virtual Result<std::string> SnapshotLayer(const std::string& snapshot) const = 0;
  virtual bool settling(const std::string& snapshot) const = 0;
  // In the order of names, at most `max` behind `after`.
  virtual Result<std::vector<std::string>> ListSnapshots(const std::string& after, size_t max) const = 0;
  // The snapshot's manifest (what every entry of it is); lies beside the snapshots, which nobody can write to.
  // kNotFound when it was never written. `fresh`: an empty one.
  virtual Result<Fd> OpenManifest(const std::string& snapshot, bool fresh) const = 0;
  // No machine may use it as a layer. Not an error when it is gone already.
  virtual Result<> RemoveSnapshot(const std::string& snapshot) = 0;
  // Snapshots of machines that run. The memory is a file beside the snapshots, which nobody but us can write to, and
  // goes with its snapshot; it counts for whoever has the slot. kConflict when the snapshot exists, kUnsupported where
  // slots cannot be copied.
  virtual Result<Fd> NewMemory(const std::string& snapshot, const DiskSlot& slot) = 0;
  virtual Result<SlotCopy> BeginCopy(const DiskSlot& slot) const = 0;
  // The copy (CopySlot has made it) and the memory become that snapshot.
  virtual Result<> PublishCopy(SlotCopy& copy, const std::string& snapshot) = 0;
  // What was not published. Not an error when there is nothing.
  virtual void DropMemory(const std::string& snapshot) = 0;
  virtual void DropCopy(const SlotCopy& copy) = 0;
  // kNotFound when the snapshot has none.
  virtual Result<Fd> OpenMemory(const std::string& snapshot) const = 0;
  // The snapshot stays.
  virtual void RemoveMemory(const std::string& snapshot) = 0;
  // Drives: directories that outlive machines, each with upper/ and work/ like a slot, and read-only states of them,
  // each with upper/. kUnsupported when the limit is one that nothing here would hold it to.
  // Without an owner an existing drive keeps the one that it has.
  virtual Result<> CreateDrive(const std::string& drive, uint64_t max_bytes, const DiskOwner& owner) = 0;
  // The directory of a drive or a state; kNotFound when there is none.
  virtual Result<std::string> DrivePath(const std::string& name) const = 0;
  virtual Result<std::vector<std::string>> ListDrives(const std::string& after, size_t max) const = 0;
  // Takes as long as there are bytes to write or copy: for a process of its own, which needs no other fd than
  // drives_fd(). The state appears whole or not at all.
  virtual Result<> SnapshotDrive(const std::string& drive, const std::string& snapshot) const = 0;
  virtual int drives_fd() const = 0;
  // `by` takes its place, with its limit, in one moment; its own contents go.
  virtual Result<> ReplaceDrive(const std::string& drive, const std::string& by) = 0;
  // No machine may use it. Not an error when it is gone already.
  virtual Result<> RemoveDrive(const std::string& name) = 0;
  // Takes as long as there are files and bytes: what was removed leaves the disk, what was published is sealed. For a
  // process of its own, between BeginTidy and EndTidy, which needs no other fds than these.
  virtual Result<> Tidy() const = 0;
  virtual std::vector<int> tidy_fds() const = 0;
  virtual bool untidy() const = 0;
  virtual bool unsealed() const = 0;  // untidy, and there is something to seal
  virtual void BeginTidy() = 0;
  virtual void EndTidy(bool done) = 0;
  // One bounded piece of background work; true when there may be more. Called when nothing else is to do.
  virtual bool Housekeep() = 0;
  // Background work is left, whether or not it can go on right now.
  virtual bool backlog() const = 0;
};

// Shares everything with the original, whose bytes are on disk then. For a process of its own.
Result<> CopySlot(const SlotCopy& copy);
// The same, ready to be the beginning of a machine.
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
