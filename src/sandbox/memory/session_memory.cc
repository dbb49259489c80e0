// A session that goes on from a saved memory: its agent still knows the commands of the session whose memory it was.
// They get rows, ids and logs of their own here, so that both copies can be listed, followed, killed and waited for.
#include <algorithm>

#include "base/ids.h"
#include "base/log.h"
#include "sandbox/sessions/session.h"

namespace sandbar::sandbox {
namespace {

constexpr int kSigKill = 9;

}  // namespace

// The log goes up to what the command had written when its memory was saved, at most; the agent repeats what was not
// acknowledged then, which the original has stored by now.
Task<std::string> Session::InheritCommand(const RestoredMemory* restored, store::Command row, uint64_t produced) {
  std::string from = std::exchange(row.id, NewId("cmd_"));
  std::string id = row.id;
  row.session = row_.id;
  row.exit_code.reset();
  row.duration_ms.reset();
  row.timed_out = row.oom_killed = false;
  SB_CO_TRYV(co_await InsertRow(row));
  auto run = Track(std::move(row), {});
  auto reader = co_await restored->open_log(std::move(from));
  // Gone with its sandbox: it begins with a hole then.
  if (!reader) co_return id;
  uint64_t at = 0;
  while (at < produced && !(*reader)->caught_up()) {
    SB_CO_TRY(LogChunk chunk, co_await (*reader)->Next());
    if (chunk.bytes.empty() && chunk.gap == 0) break;
    const uint64_t gap = std::min(chunk.gap, produced - at);
    if (gap > 0) run->log->Hole(at, gap);
    at += gap;
    chunk.bytes.resize(std::min<uint64_t>(chunk.bytes.size(), produced - at));
    if (!chunk.bytes.empty()) run->log->Append(at, chunk.stream, chunk.bytes);
    at += chunk.bytes.size();
  }
  co_return id;
}

std::vector<KeptContext> Session::IdleContexts() const {
  std::vector<KeptContext> out;
  for (const auto& [id, context] : contexts_) {
    if (context->busy() || context->command.empty()) continue;
    out.push_back(
        {context->id, context->spec, context->count, context->created_at, context->last_used_at, context->command});
  }
  return out;
}

std::optional<std::string> Session::InheritContext(const RestoredMemory& restored, const std::string& driver) {
  auto kept = std::ranges::find(restored.contexts, driver, &KeptContext::command);
  if (kept == restored.contexts.end()) return std::nullopt;
  auto context = std::make_shared<CodeContext>();
  context->TakeOver(*kept, NewDriverId());
  contexts_[context->id] = context;
  return context->command;
}

std::string Session::WantsMemory(StopCause cause, const Keep& keep) const {
  if (cause == StopCause::kLost || keep.what == Keep::What::kSnapshot) return "";
  if (keep.memory) return "asked";
  const bool can = core_->engines.Of(row_.engine).live && row_.mounts.empty();
  return core_->config.resume == "memory" && can ? "kept" : "";
}

Task<> Session::KeepMemory() {
  // The disk may have to do without the memory later.
  if (auto link = connected_->link()) {
    auto written = co_await link->WriteOut();
    if (!written) log::Warn("session {}: its files are not written out: {}", row_.id, written.error().message);
  }
  const std::vector<KeptContext> before = IdleContexts();
  const auto link = connected_->link();
  if (link) link->SetPaused(true);
  auto taken = co_await connected_->machine().SnapshotLive(row_.snapshot, false);
  if (link) link->SetPaused(false);
  if (taken) {
    memory_bytes_ = taken->memory_bytes;
    kept_contexts_ = core_->vault.Seal(EncodeContexts(StillIdle(before, IdleContexts())), "memory/" + row_.snapshot);
    co_return Result<>{};
  }
  Error error = std::move(taken).error();
  if (core_->closing || error.code == Code::kCancelled) co_return std::unexpected(std::move(error));
  // A server before us may have begun: it is there, or on its way.
  SB_CO_TRY(auto snapshots, co_await core_->deps.engine->ListSnapshots());
  if (std::ranges::find(snapshots, row_.snapshot) != snapshots.end()) co_return Result<>{};
  if (error.code == Code::kConflict) co_return std::unexpected(std::move(error));
  log::Error("session {}: its memory is not kept: {}", row_.id, error.message);
  memory_lost_ = std::move(error.message);
  row_.snapshot_memory.clear();
  co_return Result<>{};
}

Task<> Session::Inherit(RestoredMemory restored) {
  auto link = connected_->link();
  if (!link) co_return Fail(Code::kUnavailable, "the agent of the restored machine does not answer");
  const std::vector<protocol::CommandState> known = link->known_commands();
  link.reset();
  std::vector<protocol::Renamed> names;
  std::vector<std::string> strangers;
  for (const protocol::CommandState& command : known) {
    // Only what that session ran: an agent could name any command.
    auto find = [session = restored.session, id = command.id](store::Store& store) {
      return store.FindCommand(session, id);
    };
    if (auto driver = InheritContext(restored, command.id)) {
      names.push_back({command.id, *std::move(driver)});
      continue;
    }
    SB_CO_TRY(auto row, co_await core_->Db(std::move(find)));
    if (!row) {
      strangers.push_back(command.id);
      continue;
    }
    SB_CO_TRY(std::string id, co_await InheritCommand(&restored, *std::move(row), command.produced));
    names.push_back({command.id, std::move(id)});
  }
  SB_CO_TRYV(co_await connected_->Rekey(std::move(names), this));
  // Interpreters in the middle of something, and what nobody can ask for.
  for (const std::string& id : strangers) connected_->link()->Kill(id, kSigKill);
  co_return Result<>{};
}

}  // namespace sandbar::sandbox
