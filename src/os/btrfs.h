// A btrfs filesystem as the store of writable layers: one subvolume and one quota group per machine.
// Used by the spawner's only thread. Names come from us, never from a guest.
//
//   SB_TRY(auto mode, EnableQuota(root.get(), false));
//   SB_TRY(uint64_t id, CreateSubvolume(root.get(), "m1"));
//   SB_TRYV(SetSubvolumeLimit(root.get(), id, 10ull << 30));     // writes beyond fail with EDQUOT, exactly
//   SB_TRYV(CreateQuotaGroup(root.get(), GroupId(1, 7)));        // "1/7": counts and limits all its members together
//   SB_TRYV(JoinQuotaGroup(root.get(), id, GroupId(1, 7)));
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"

namespace sandbar::os {

enum class QuotaMode { kSimple, kFull };

// The directory of /sys/fs/btrfs in which the kernel shows the figures of this filesystem.
Result<std::string> BtrfsSysPath(int root);

// Simple quotas (kernel 6.7) count at allocation: what a subvolume wrote, not what it shares with the one that it was
// copied from. Full ones are the fallback, and count both. A filesystem keeps the mode that it has already.
Result<QuotaMode> EnableQuota(int root, bool force_full);

// The id of a group as the kernel has it. Level 0 is of subvolumes.
constexpr uint64_t GroupId(uint64_t level, uint64_t number) {
  return level << 48 | (number & ((1ULL << 48) - 1));
}
constexpr uint64_t GroupLevel(uint64_t group) {
  return group >> 48;
}
// Returns the subvolume's id, which is its quota group's too.
Result<uint64_t> CreateSubvolume(int parent, const std::string& name);
Result<uint64_t> SubvolumeId(int subvolume);
// Takes as long as the kernel has files of it in memory; it frees the space in the background.
Result<> DestroySubvolume(int parent, const std::string& name);
Result<bool> IsSubvolumeReadOnly(int subvolume);
// From now on nobody can write to it, root of the host included. Waits for the disk.
Result<> MakeSubvolumeReadOnly(int subvolume);
// A copy under that name: shares every byte, and what was written before is in it and on disk. Waits for bytes that
// are still on their way. It is a member of `group` from its first byte on; 0: of none.
Result<> SnapshotSubvolume(int subvolume, int parent, const std::string& name, bool writable, uint64_t group = 0);
// Of a subvolume or of any other group; 0: no limit.
Result<> SetSubvolumeLimit(int root, uint64_t id, uint64_t bytes);
// As of the last commit of the filesystem (a few seconds).
Result<uint64_t> SubvolumeUsage(int root, uint64_t id);
// kConflict while the subvolume is still being freed: try again later.
Result<> RemoveQuotaGroup(int root, uint64_t id);

// Not an error when it exists.
Result<> CreateQuotaGroup(int root, uint64_t group);
// What the member has used counts for the group from now on, and no longer. Not an error when it was so already.
Result<> JoinQuotaGroup(int root, uint64_t member, uint64_t group);
Result<> LeaveQuotaGroup(int root, uint64_t member, uint64_t group);
// The groups that this one is a member of.
Result<std::vector<uint64_t>> QuotaGroupsAbove(int root, uint64_t group);
// Every group, in the order of ids.
Result<std::vector<uint64_t>> ListQuotaGroups(int root);
Result<bool> SubvolumeExists(int root, uint64_t id);
// Of this moment, without what is promised to writes that are under way.
Result<uint64_t> QuotaGroupUsage(int root, uint64_t group);
struct QuotaGroupState {
  uint64_t limit = 0;  // 0: none
  uint64_t held = 0;   // what the kernel compares with the limit: with what is promised to writes
};
// Of this moment. kUnsupported where the kernel does not show it.
Result<QuotaGroupState> ReadQuotaGroup(int root, uint64_t group);

// What a filesystem on one device has. Space is handed to data or to metadata in large chunks.
struct BtrfsSpace {
  uint64_t total = 0;
  uint64_t unallocated = 0;  // may become either
  uint64_t data_free = 0, metadata_free = 0;
  uint64_t used = 0;  // of both
};
Result<BtrfsSpace> SpaceOf(int root);
// How large the next chunk for metadata is, up to a tenth of the filesystem. kUnsupported before kernel 6.0.
Result<> SetMetadataChunkSize(int root, uint64_t bytes);
// Chunks that hold little data are emptied by the kernel when room gets scarce. Does nothing where it cannot.
void ReclaimDataChunks(int root);
Result<> GrowToDevice(int root);

}  // namespace sandbar::os
