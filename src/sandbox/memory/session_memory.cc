// The memory of a session: kept at its stop, and taken over from an earlier session. The agent of a restored machine
// still knows the commands of the earlier session. They get rows, ids and logs of their own here, so that both copies
// can be listed, followed, killed and waited for.
#include <algorithm>

#include "base/ids.h"
#include "base/log.h"
#include "sandbox/sessions/session.h"

namespace sandbar::sandbox {
namespace {

constexpr int kSigKill = 9;

}  // namespace

std::string Session::WantsMemory(StopCause cause, const Keep& keep) const {
  if (cause == StopCause::kLost || keep.what == Keep::What::kSnapshot) return "";
  if (keep.memory) return "asked";
  const bool can = state_.core->engines.Of(state_.row.engine).keeps_memory && state_.row.mounts.empty();
  return state_.core->config.resume == "memory" && can ? "kept" : "";
}

Task<> Session::KeepMemory() {
  // The disk may have to do without the memory later.
  if (auto link = state_.connected->link()) {
    auto written = co_await link->WriteOut();
    if (!written) log::Warn("session {}: its files are not written out: {}", state_.row.id, written.error().message);
  }
  const std::vector<KeptContext> before = contexts_.Idle();
  const auto link = state_.connected->link();
  if (link) link->SetPaused(true);
  auto taken = co_await state_.connected->machine().SnapshotMemory(state_.row.snapshot, false);
  if (link) link->SetPaused(false);
  if (taken) {
    memory_bytes_ = taken->memory_bytes;
    kept_contexts_ =
        state_.core->vault.Seal(EncodeContexts(StillIdle(before, contexts_.Idle())), "memory/" + state_.row.snapshot);
    co_return Result<>{};
  }
  Error error = std::move(taken).error();
  if (state_.core->closing || error.code == Code::kCancelled) co_return std::unexpected(std::move(error));
  // A server before us may have begun: it is there, or on its way.
  SB_CO_TRY(auto snapshots, co_await state_.core->deps.engine->ListSnapshots());
  if (std::ranges::find(snapshots, state_.row.snapshot) != snapshots.end()) co_return Result<>{};
  if (error.code == Code::kConflict) co_return std::unexpected(std::move(error));
  log::Error("session {}: its memory is not kept: {}", state_.row.id, error.message);
  memory_lost_ = std::move(error.message);
  state_.row.snapshot_memory.clear();
  co_return Result<>{};
}

Task<> Session::TakeOver(RestoredMemory restored) {
  auto link = state_.connected->link();
  if (!link) co_return Fail(Code::kUnavailable, "the agent of the restored machine does not answer");
  const std::vector<protocol::CommandState> known = link->known_commands();
  link.reset();
  std::vector<protocol::Renamed> names;
  std::vector<std::string> strangers;
  for (const protocol::CommandState& command : known) {
    // Only what that session ran: an agent could name any command.
    auto find = [session = restored.session, id = command.id](store::Journal& journal) {
      return journal.FindCommand(session, id);
    };
    if (auto driver = contexts_.TakeOver(restored, command.id)) {
      names.push_back({command.id, *std::move(driver)});
      continue;
    }
    SB_CO_TRY(auto row, co_await state_.core->Journal(std::move(find)));
    if (!row) {
      strangers.push_back(command.id);
      continue;
    }
    SB_CO_TRY(std::string id, co_await commands_.TakeOver(&restored, *std::move(row), command.produced));
    names.push_back({command.id, std::move(id)});
  }
  SB_CO_TRYV(co_await state_.connected->Rekey(std::move(names), this));
  // Interpreters in the middle of something, and what nobody can ask for.
  for (const std::string& id : strangers) state_.connected->link()->Kill(id, kSigKill);
  co_return Result<>{};
}

}  // namespace sandbar::sandbox
