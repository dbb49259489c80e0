// What a deletion leaves behind and has to go soon: saved memory, which may hold secrets, and deleted rows in the log
// of the database. Single loop; owned by the domain.
#pragma once

#include "sandbox/core.h"
#include "sandbox/housekeeper.h"
#include "sandbox/memory/memory_keeper.h"

namespace sandbar::sandbox {

class DeletedTraces {
 public:
  DeletedTraces(Core* core, MemoryKeeper* memory, Housekeeper* housekeeper)
      : core_(core), memory_(memory), housekeeper_(housekeeper) {}

  // After a deletion: removes saved memory at once, and the rest with the next round of the housekeeper.
  Task<> Clear();
  // Chore: removes deleted rows from the database's log, once per round.
  Task<> PurgeLog();

 private:
  Core* core_;
  MemoryKeeper* memory_;
  Housekeeper* housekeeper_;
  bool purge_ = false;
};

}  // namespace sandbar::sandbox
