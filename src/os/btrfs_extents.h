// How many bytes a writable copy of a btrfs subvolume still shares with its original, and how many it has written
// since. Simple quotas count only the bytes written; a limit on both together needs the shared ones too. Used by the
// spawner and by processes that it forks.
//
//   SB_TRY(QuotaMeter meter, QuotaMeter::Open(std::move(directory)));
//   SB_TRY(Held held, meter.Read());                                 // cheap, the same at any size
//   SB_TRY(uint64_t old, InheritedBytes(subvolume.get(), false));    // takes as long as there are files
#pragma once

#include <array>
#include <cstdint>

#include "base/fd.h"
#include "base/result.h"

namespace sandbar::os {

// What a quota group is charged for, as of this moment. The kernel compares the sum with the group's limit.
struct Held {
  uint64_t counted = 0;   // on the disk
  uint64_t data = 0;      // promised to writes that are under way
  uint64_t metadata = 0;  // the same, for files' names and places
  // Of the subvolume: grows when a change in it is committed. QuotaMeter::Read leaves it 0, see Generation.
  uint64_t generation = 0;
  uint64_t total() const { return counted + data + metadata; }
  bool operator==(const Held&) const = default;
};

class QuotaMeter {
 public:
  QuotaMeter() = default;
  // kUnsupported where the kernel shows no such figures.
  static Result<QuotaMeter> Open(Fd subvolume);
  // Without the generation, which changes only with a commit and need not be read as often.
  Result<Held> Read() const;
  Result<uint64_t> Generation() const;
  explicit operator bool() const { return static_cast<bool>(subvolume_); }

 private:
  Fd subvolume_;
  uint64_t id_ = 0;
  std::array<Fd, 4> files_;
};

// The bytes on the disk, data and metadata, that were there when this copy was made and that it still refers to. They
// never become more. An extent counts in full as long as one of its blocks is used, because the kernel frees it only as
// a whole. Metadata counts as if its leaves were a third full. Needs CAP_SYS_ADMIN. Reads the filesystem's own tree, no
// file. `write_out`: the kernel begins to write such files out, because a block that was overwritten only in memory
// still keeps its old block on the disk.
Result<uint64_t> InheritedBytes(int subvolume, bool write_out);

}  // namespace sandbar::os
