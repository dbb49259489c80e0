// A btrfs filesystem as the store of writable layers: one subvolume and one quota group per machine.
// Used by the spawner's only thread. Names come from us, never from a guest.
//
//   SB_TRY(auto mode, EnableQuota(root.get(), false));
//   SB_TRY(uint64_t id, CreateSubvolume(root.get(), "m1"));
//   SB_TRYV(SetSubvolumeLimit(root.get(), id, 10ull << 30));     // writes beyond fail with EDQUOT, exactly
#pragma once

#include <cstdint>
#include <string>

#include "base/fd.h"
#include "base/result.h"

namespace sandbar::os {

enum class QuotaMode { kSimple, kFull };

// Simple quotas (kernel 6.7) count at allocation; full ones are the fallback.
Result<QuotaMode> EnableQuota(int root, bool force_full);
// Returns the subvolume's id, which is its quota group's too.
Result<uint64_t> CreateSubvolume(int parent, const std::string& name);
Result<uint64_t> SubvolumeId(int subvolume);
// Takes as long as the kernel has files of it in memory; it frees the space in the background.
Result<> DestroySubvolume(int parent, const std::string& name);
Result<bool> IsSubvolumeReadOnly(int subvolume);
// From now on nobody can write to it, root of the host included. Waits for the disk.
Result<> MakeSubvolumeReadOnly(int subvolume);
// A copy under that name: shares every byte, and what was written before is in it and on disk. Waits for bytes that
// are still on their way.
Result<> SnapshotSubvolume(int subvolume, int parent, const std::string& name, bool writable);
Result<> SetSubvolumeLimit(int root, uint64_t id, uint64_t bytes);  // 0: no limit
// As of the last commit of the filesystem (a few seconds).
Result<uint64_t> SubvolumeUsage(int root, uint64_t id);
// kConflict while the subvolume is still being freed: try again later.
Result<> RemoveQuotaGroup(int root, uint64_t id);
Result<> GrowToDevice(int root);

}  // namespace sandbar::os
