// Saved memory on disk: of paused sandboxes, and of live forks while they start. Memory is used once; afterwards, or
// when its snapshot is deleted, it is removed. Single loop; owned by the domain.
#pragma once

#include <optional>
#include <set>
#include <string>

#include "sandbox/commands/commands.h"
#include "sandbox/core.h"
#include "sandbox/memory/restored_memory.h"
#include "sandbox/sandboxes/sandboxes.h"

namespace sandbar::sandbox {

class MemoryKeeper {
 public:
  MemoryKeeper(Core* core, Commands* commands) : core_(core), commands_(commands) {}

  // What a machine that continues from the memory in `snapshot` takes over from `session`.
  RestoredMemory MemoryIn(Scope scope, std::string snapshot, std::string session);
  // The memory that a resume continues from; nothing when it starts from the files. kConflict when memory was demanded
  // and there is none.
  Result<std::optional<RestoredMemory>> MemoryFor(const Scope& scope, const store::Snapshot& snapshot, ResumeFrom from);
  // The memory was used: a second machine that continues from the same moment would be a fork that nobody asked for.
  Task<> Drop(store::Snapshot snapshot);
  // Chore: removes memory that a server which died, or a spawner that did not answer, left.
  Task<> Tidy();

  // Fork snapshots exist only while a live fork starts from them. A note is written first, so that the next start
  // removes the snapshot after a crash.
  Task<std::string> BeginForkSnapshot();
  Task<> EndForkSnapshot(std::string snapshot);
  Task<> TidyForkSnapshots();  // chore

 private:
  Task<> RemoveSpent(std::string snapshot);
  Task<> DropForkSnapshot(std::string snapshot);

  Core* core_;
  Commands* commands_;
  std::set<std::string> forking_;  // snapshots that a live fork is about to start from
};

}  // namespace sandbar::sandbox
