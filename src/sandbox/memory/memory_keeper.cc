#include "sandbox/memory/memory_keeper.h"

#include "base/ids.h"
#include "base/log.h"
#include "sandbox/snapshots/retention.h"

namespace sandbar::sandbox {
namespace {

// The note of a fork snapshot holds the time. A job of the spawner may still publish the snapshot after a crash, so it
// is looked for until it cannot come any more.
constexpr std::string_view kNote = "live/";
constexpr int64_t kNoteMs = 15LL * 60 * 1000;

}  // namespace

RestoredMemory MemoryKeeper::MemoryIn(Scope scope, std::string snapshot, std::string session) {
  RestoredMemory restored;
  restored.open_log = [commands = commands_, scope = std::move(scope), session](std::string command) {
    return commands->OpenLog(scope, session, std::move(command));
  };
  restored.session = std::move(session);
  restored.snapshot = std::move(snapshot);
  return restored;
}

Result<std::optional<RestoredMemory>> MemoryKeeper::MemoryFor(const Scope& scope, const store::Snapshot& snapshot,
                                                              ResumeFrom from) {
  if (from == ResumeFrom::kDisk) return std::nullopt;
  if (snapshot.memory.empty()) {
    if (from == ResumeFrom::kEither) return std::nullopt;
    return Fail(Code::kConflict, "snapshot " + snapshot.id + " has no memory: sandbox \"" + snapshot.sandbox +
                                     "\" can only be started from its files");
  }
  RestoredMemory restored = MemoryIn(scope, snapshot.id, snapshot.session);
  // Without the list the interpreters are lost, and nothing else.
  auto contexts = core_->vault.Open(snapshot.contexts, "memory/" + snapshot.id);
  auto list = contexts ? DecodeContexts(*contexts) : std::unexpected(contexts.error());
  if (!list) log::Warn("snapshot {}: {}", snapshot.id, list.error().message);
  if (list) restored.contexts = *std::move(list);
  return restored;
}

Task<> MemoryKeeper::Drop(store::Snapshot snapshot) {
  auto forget = [id = snapshot.id](store::Store& store) { return ForgetMemory(store, id); };
  SB_CO_TRYV(co_await core_->Combined(std::move(forget)));
  co_return co_await RemoveSpent(std::move(snapshot.id));
}

Task<> MemoryKeeper::RemoveSpent(std::string snapshot) {
  SB_CO_TRYV(co_await core_->deps.engine->RemoveMemory(snapshot));
  auto done = [snapshot](store::Journal& journal) { return journal.SetNote(std::string(kSpentMemory) + snapshot, ""); };
  co_return co_await core_->Journal(std::move(done));
}

Task<> MemoryKeeper::Tidy() {
  auto list = [](store::Store& store) -> Result<std::vector<std::string>> {
    SB_TRY(auto notes, store.Notes(std::string(kSpentMemory)));
    std::vector<std::string> spent;
    for (const auto& [name, unused] : notes) {
      std::string id = name.substr(kSpentMemory.size());
      SB_TRY(auto row, store.FindSnapshot(id));
      // The server ended before it changed the row: the memory is still in use.
      if (row && !row->memory.empty()) {
        SB_TRYV(store.SetNote(name, ""));
      } else {
        spent.push_back(std::move(id));
      }
    }
    return spent;
  };
  SB_CO_TRY(auto spent, co_await core_->Combined(std::move(list)));
  for (std::string& snapshot : spent) SB_CO_TRYV(co_await RemoveSpent(std::move(snapshot)));
  co_return Result<>{};
}

Task<std::string> MemoryKeeper::BeginForkSnapshot() {
  const std::string snapshot = NewId("live_");
  auto note = [snapshot](store::Journal& journal) {
    return journal.SetNote(std::string(kNote) + snapshot, std::to_string(NowMs()));
  };
  SB_CO_TRYV(co_await core_->Journal(std::move(note)));
  forking_.insert(snapshot);
  co_return snapshot;
}

Task<> MemoryKeeper::EndForkSnapshot(std::string snapshot) {
  forking_.erase(snapshot);
  if (core_->closing) co_return Result<>{};
  auto dropped = co_await DropForkSnapshot(snapshot);
  if (!dropped) log::Warn("{}: {}", snapshot, dropped.error().message);
  co_return Result<>{};
}

Task<> MemoryKeeper::DropForkSnapshot(std::string snapshot) {
  SB_CO_TRYV(co_await core_->deps.engine->RemoveSnapshot(snapshot));
  auto forget = [snapshot](store::Journal& journal) { return journal.SetNote(std::string(kNote) + snapshot, ""); };
  co_return co_await core_->Journal(std::move(forget));
}

Task<> MemoryKeeper::TidyForkSnapshots() {
  auto list = [](store::Journal& journal) { return journal.Notes(std::string(kNote)); };
  SB_CO_TRY(auto notes, co_await core_->Journal(std::move(list)));
  for (const auto& [name, at] : notes) {
    const std::string snapshot = name.substr(kNote.size());
    if (forking_.contains(snapshot)) continue;
    SB_CO_TRYV(co_await core_->deps.engine->RemoveSnapshot(snapshot));
    if (NowMs() - std::strtoll(at.c_str(), nullptr, 10) < kNoteMs) continue;
    SB_CO_TRYV(co_await DropForkSnapshot(snapshot));
  }
  co_return Result<>{};
}

}  // namespace sandbar::sandbox
