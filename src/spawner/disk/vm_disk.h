// The two block devices of a microVM's root: the image, merged from its layers into one read-only erofs file that all
// machines share, and a raw file in the machine's disk slot whose size is the disk limit. The host writes an empty ext4
// to the raw file before the first guest uses it, and never mounts it. Snapshots are copies of the slot that share its
// blocks. Single thread; the comments say which functions take long and need a process of their own.
//
//   SB_TRY(Fd disk, OpenVmDisk(slot, limit, &fresh));
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "spawner/host_resources.h"

namespace sandbar::spawner {

inline constexpr const char* kVmDiskFile = "disk.img";

// Whether a snapshot's directory holds a block device (kept by machines of class 3) instead of files.
bool IsBlockFormat(const std::string& layer);
Result<> CheckFormat(const std::string& snapshot, const std::string& layer, bool block);

// The size of a machine's device by its limit, which may be none, and of a drive's.
uint64_t VmDiskBytes(uint64_t limit);
uint64_t VmDriveBytes(const std::string& path);

// What the place of a device of this size may take on the host's disk: blocks that were given up and written anew are
// freed only with their whole extent.
constexpr uint64_t VmSlotLimit(uint64_t bytes) {
  return 2 * bytes + (1ULL << 30);
}

// Whether the drive has a finished device.
bool HasVmDisk(const std::string& drive);

// The merged image if it is there already; kNotFound otherwise.
Result<Fd> OpenMergedImage(const HostResources& host, const std::vector<std::string>& ids, const std::string& digest);
// Makes it; takes as long as the image is large. `layers`: where they can be read, topmost first.
Result<Fd> MergeImage(const HostResources& host, const std::vector<std::string>& ids, const std::string& digest,
                      const std::vector<std::string>& layers);

// The machine's disk file in its slot; `fresh` when it has no filesystem yet.
Result<Fd> OpenVmDisk(const DiskSlot& slot, uint64_t bytes, bool* fresh);
// The words for mke2fs, but for the device's name.
std::vector<std::string> FormatWords(uint64_t bytes);
// Makes the filesystem; takes a moment.
Result<> FormatVmDisk(int disk);
// An empty device in a directory that holds nothing else, which is marked as such.
Result<Fd> CreateVmDisk(int dir, uint64_t bytes, const char* name = kVmDiskFile);

// A drive's device for a machine, which has to be finished.
struct DriveDevice {
  std::string path;    // of the drive
  Fd disk;             // what the machine gets
  bool fresh = false;  // it has no filesystem yet
  bool copy = false;   // it is empty, and becomes a copy
  uint64_t bytes = 0;
};
// A drive that was never used becomes a device. A drive with files in a directory is kConflict. A read-only mount gets
// a copy in the machine's slot that shares all blocks, because a filesystem that was not unmounted must be repaired
// before it can be read, and the original stays unchanged.
Result<DriveDevice> OpenVmDrive(const HostResources& host, const DiskSlot& slot, const DriveMount& mount);
// Makes the filesystem, or the copy; takes as long as either does. A drive has its filesystem when it is whole.
Result<> FinishVmDrive(const DriveDevice& drive);
// What the copy takes of the slot's limit where the filesystem counts shared blocks for everybody.
Result<uint64_t> CopiedBytes(const HostResources& host, const DriveMount& mount);

}  // namespace sandbar::spawner
