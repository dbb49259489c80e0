#include "sandbox/recovery/recovery.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/ids.h"
#include "base/log.h"
#include "sandbox/project_limits.h"
#include "sandbox/sandboxes/sealed_settings.h"
#include "sandbox/snapshots/retention.h"

namespace sandbar::sandbox {

Task<> Recovery::DestroyMachine(std::string machine_id) {
  SB_CO_TRY(auto machine, co_await core_->deps.engine->Attach(std::move(machine_id)));
  SB_CO_TRYV(co_await machine->Destroy());
  co_return Result<>{};
}

Task<> Recovery::RemovePool(std::vector<store::PoolMember> pooled,
                            std::map<std::string, engine::MachineState>* existing) {
  for (const auto& member : pooled) {
    const bool there = existing->erase(member.machine_id) > 0;
    Result<> destroyed;
    if (there) destroyed = co_await DestroyMachine(member.machine_id);
    if (!destroyed) log::Error("pool member {}: {}", member.machine_id, destroyed.error().message);
    if (!destroyed) continue;
    auto remove = [id = member.machine_id](store::Journal& journal) { return journal.DeletePoolMember(id); };
    SB_CO_TRYV(co_await core_->Journal(std::move(remove)));
  }
  co_return Result<>{};
}

Task<> Recovery::Run() {
  SB_CO_TRY(auto machines, co_await core_->deps.engine->List());
  auto read_sessions = [](store::Journal& journal) { return journal.UnfinishedSessions(); };
  SB_CO_TRY(auto rows, co_await core_->Journal(std::move(read_sessions)));
  auto read_pool = [](store::Journal& journal) { return journal.PoolMembers(); };
  SB_CO_TRY(auto pooled, co_await core_->Journal(std::move(read_pool)));
  auto read_pending = [](store::Journal& journal) { return PendingDeletions(journal); };
  SB_CO_TRY(auto pending, co_await core_->Journal(std::move(read_pending)));

  std::map<std::string, engine::MachineState> existing;
  for (const auto& m : machines) existing[m.machine_id] = m.state;
  SB_CO_TRYV(co_await RemovePool(std::move(pooled), &existing));
  // All at once: one machine that does not answer must not hold up the others.
  TaskGroup group(core_->ex);
  Result<> failure;
  for (auto& row : rows) {
    auto it = existing.find(row.machine_id);
    Remains remains;
    remains.alive = it != existing.end() && it->second != engine::MachineState::kExited;
    remains.present = it != existing.end();
    auto mine = std::ranges::find(pending, store::KeyOf(row), &PendingDeletion::key);
    if (mine != pending.end()) remains.pending = *mine;
    if (remains.present) existing.erase(it);
    if (row.status == store::Status::kPending) {
      group.Spawn(RollBack(std::move(row), remains.present));
    } else {
      // One that ended while we were away is attached too: its usage and its remains are still there.
      group.Spawn(RecoverSession(std::move(row), remains, &failure));
    }
  }
  for (const auto& [id, state] : existing) group.Spawn(DestroyLeftover(id, state != engine::MachineState::kBooted));
  co_await group.Join();
  co_return failure;
}

Task<> Recovery::RollBack(store::Session row, bool present) {
  log::Info("create of {} was not finished: undone", row.sandbox);
  if (present) {
    auto destroyed = co_await DestroyMachine(row.machine_id);
    if (!destroyed) log::Error("machine {}: {}", row.machine_id, destroyed.error().message);
    if (!destroyed) co_return destroyed;
  }
  auto undo = [row = std::move(row)](store::Store& store) { return UndoSession(store, row, "the server ended"); };
  co_return co_await core_->Combined(std::move(undo));
}

Task<store::Session> Recovery::Relabel(store::Session row, int isolation_class) {
  row.isolation_class = isolation_class;
  auto relabel = [row](store::Store& store) {
    auto mirror = [&row](store::Sandbox& s) -> Result<> {
      if (s.current_session == row.id) s.isolation_class = row.isolation_class;
      return {};
    };
    return store.SaveSession(row, mirror);
  };
  SB_CO_TRYV(co_await core_->Combined(std::move(relabel)));
  co_return row;
}

Task<> Recovery::RecoverSession(store::Session row, Remains remains, Result<>* failure) {
  auto key = store::KeyOf(row);
  auto sandbox = co_await core_->directory->FindSandbox(std::move(key));
  auto unfinished = [id = row.id](store::Journal& journal) { return journal.UnfinishedCommands(id); };
  auto commands = co_await core_->Journal(std::move(unfinished));
  if (!sandbox || !commands) {
    *failure = std::unexpected(sandbox ? commands.error() : sandbox.error());
    co_return *failure;
  }
  const engine::EngineInfo engine = core_->engines.Of(row.engine, row.nesting);
  if (row.isolation_class != engine.isolation_class) {
    auto relabelled = co_await Relabel(std::move(row), engine.isolation_class);
    if (!relabelled) {
      *failure = std::unexpected(std::move(relabelled).error());
      co_return *failure;
    }
    row = *std::move(relabelled);
  }
  const bool weak = (row.nesting && !engine.no_nesting.empty()) ||
                    (*sandbox && !Meets((**sandbox).isolation, row.engine, row.isolation_class, row.nesting));
  const bool expired = NowMs() >= row.started_at.value_or(row.created_at) + row.timeout_ms;
  const bool stopping = row.status == store::Status::kStopping || row.status == store::Status::kSnapshotting;
  const std::string reason = row.stop_reason;
  const std::string id = row.id;
  auto inherited = co_await disk_->InheritedBytes(row, UINT64_MAX);
  auto session =
      stopper_->Add(std::move(row), *sandbox ? OpenEnv(*core_, **sandbox) : std::map<std::string, std::string>{});
  if (*sandbox) session->clock().SetIdleTimeout((**sandbox).idle_timeout_ms);
  session->NoteInherited(inherited.value_or(0));
  // Before its clock or its listener ask for a stop that keeps something. It waits for "started", as all do.
  const bool deleted = remains.pending && *sandbox && remains.pending->Means(**sandbox);
  if (deleted && !stopping) stopper_->Request(id, StopCause::kRequested, "deleted", KeepNothing());
  Result<> attached = co_await session->Reattach(*std::move(commands), remains.present, remains.alive);
  if (core_->closing) co_return attached;
  if (!attached) log::Warn("session {}: {}", id, attached.error().message);
  // The server before us may have ended between the record of the session and this.
  if (attached && session->connected()) {
    const engine::Owner owner = DiskOwner(*core_, session->row().team, session->row().project);
    auto assigned = co_await session->connected()->machine().Assign(owner);
    if (!assigned) log::Warn("session {}: its disk counts for no project: {}", id, assigned.error().message);
  }
  // The stop waits for "started", success or not: what could not be attached is ended all the same.
  session->started()->Set(true);
  if (stopping) {
    stopper_->Request(id, StopCause::kRequested, reason);
  } else if (expired) {
    stopper_->Request(id, StopCause::kTimeout, "timeout");
  } else if (weak) {
    stopper_->Request(id, StopCause::kRequested, "this server does not meet the demanded isolation any more");
  } else if (!attached) {
    stopper_->Request(id, StopCause::kLost, "machine lost: " + attached.error().message);
  }
  // A live one is ready now; one that ends does so in the background.
  co_return Result<>{};
}

Task<> Recovery::DestroyLeftover(std::string machine_id, bool started) {
  auto find = [machine_id](store::Journal& journal) { return journal.FindSessionByMachine(machine_id); };
  SB_CO_TRY(auto owner, co_await core_->Journal(std::move(find)));
  if (owner) {
    log::Info("machine {} of a finished session: destroyed", machine_id);
    co_return co_await DestroyMachine(std::move(machine_id));
  }
  if (!started) {
    log::Info("machine {} was never started, and no row names it: destroyed", machine_id);
    co_return co_await DestroyMachine(std::move(machine_id));
  }
  log::Warn("machine {} has no record: paused and left alone; was the database replaced?", machine_id);
  SB_CO_TRY(auto machine, co_await core_->deps.engine->Attach(machine_id));
  co_return co_await machine->Pause();
}

}  // namespace sandbar::sandbox
