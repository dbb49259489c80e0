#include "sandbox/snapshots/deleted_traces.h"

#include <utility>

#include "base/log.h"

namespace sandbar::sandbox {

Task<> DeletedTraces::PurgeLog() {
  if (!std::exchange(purge_, false)) co_return Result<>{};
  auto purge = [](store::Journal& journal) { return journal.PurgeLog(); };
  auto purged = co_await core_->Journal(std::move(purge));
  if (!purged) purge_ = true;
  co_return purged;
}

Task<> DeletedTraces::Clear() {
  purge_ = true;
  auto tidied = co_await memory_->Tidy();
  if (!tidied && !core_->closing) log::Warn("memory of deleted snapshots: {}", tidied.error().message);
  housekeeper_->Wake();
  co_return Result<>{};
}

}  // namespace sandbar::sandbox
