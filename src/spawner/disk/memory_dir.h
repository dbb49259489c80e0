// The memory of snapshots that were taken of running machines: <store>/memory/<snapshot>/memory, a file in a subvolume
// of its own, so that it counts for the project of its machine. Only the host's root can write there. Single thread.
//
//   SB_TRY(Fd file, memory.Create(snapshot, slot));   // under another name until it is published
//   SB_TRYV(memory.Publish(snapshot));
//   SB_TRY(Fd file, memory.Open(snapshot));
#pragma once

#include <functional>
#include <string>

#include "base/fd.h"
#include "base/result.h"
#include "spawner/disk/disk.h"
#include "spawner/disk/store_groups.h"

namespace sandbar::spawner {

class MemoryDir {
 public:
  // `groups` outlives this object.
  MemoryDir(Fd dir, StoreGroups* groups) : dir_(std::move(dir)), groups_(groups) {}

  // An empty file for the memory of this snapshot. Its bytes count for the owner of the slot.
  Result<Fd> Create(const std::string& snapshot, const DiskSlot& slot);
  Result<> Publish(const std::string& snapshot) const;
  // kNotFound when the snapshot has no memory.
  Result<Fd> Open(const std::string& snapshot) const;
  // Removes the memory of a snapshot that was published, or of one that was not (Drop). Not an error when there is
  // none. Only the name goes; Tidy frees the space.
  void Remove(const std::string& snapshot);
  void Drop(const std::string& snapshot);
  // Removes the memory of snapshots that do not exist.
  void Sweep(const std::function<bool(const std::string&)>& exists);
  int fd() const { return dir_.get(); }
  void Close() { dir_.Reset(); }

 private:
  Fd dir_;
  StoreGroups* groups_;
};

}  // namespace sandbar::spawner
