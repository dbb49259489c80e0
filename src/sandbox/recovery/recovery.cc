// What a start does before anyone may call: compare the rows with the machines that exist, and make them agree.
//
//   machine of the pool ................ destroy: pools are never adopted
//   row "running", machine alive ....... attach, replay, clocks from started_at + timeout
//   row "running", machine gone ........ stopped (its deadline passed) or aborted ("machine lost")
//   row "stopping", "snapshotting" ..... finish the stop, with the snapshot that it was to make
//   row "pending" ...................... the create or resume was never answered: undo it
//   sandbox marked for deletion ........ end a session that runs and keep nothing of it; delete the sandbox once the
//   API
//                                        answers (service_delete.cc)
//   machine of a finished row .......... destroy
//   machine without a row, never started  destroy: a create boots it while the record is written
//   another machine without a row ...... freeze and leave: the database may be the thing that was lost
#include <algorithm>
#include <map>
#include <set>

#include "base/ids.h"
#include "base/log.h"
#include "sandbox/project_limits.h"
#include "sandbox/sandboxes/pending_deletion.h"
#include "sandbox/service_impl.h"
#include "sandbox/sessions/network.h"
#include "sandbox/snapshots/retention.h"

namespace sandbar::sandbox {

Task<> ServiceImpl::DestroyMachine(std::string machine_id) {
  SB_CO_TRY(auto machine, co_await core_.deps.engine->Attach(std::move(machine_id)));
  SB_CO_TRYV(co_await machine->Destroy());
  co_return Result<>{};
}

Task<> ServiceImpl::Recover() {
  SB_CO_TRY(auto machines, co_await core_.deps.engine->List());
  auto read_sessions = [](store::Store& store) { return store.UnfinishedSessions(); };
  SB_CO_TRY(auto rows, co_await core_.Db(std::move(read_sessions)));
  auto read_pool = [](store::Store& store) { return store.PoolMembers(); };
  SB_CO_TRY(auto pooled, co_await core_.Db(std::move(read_pool)));
  auto read_marks = [](store::Store& store) { return MarkedForDeletion(store); };
  SB_CO_TRY(auto marked, co_await core_.Db(std::move(read_marks)));

  std::map<std::string, engine::MachineState> existing;
  for (const auto& m : machines) existing[m.machine_id] = m.state;
  TaskGroup group(core_.ex);
  for (const auto& member : pooled) {
    const bool there = existing.erase(member.machine_id) > 0;
    Result<> destroyed;
    if (there) destroyed = co_await DestroyMachine(member.machine_id);
    if (!destroyed) log::Error("pool member {}: {}", member.machine_id, destroyed.error().message);
    if (!destroyed) continue;
    auto remove = [id = member.machine_id](store::Store& store) { return store.DeletePoolMember(id); };
    SB_CO_TRYV(co_await core_.Db(std::move(remove)));
  }
  // All at once: one machine that does not answer must not hold up the others.
  Result<> failure;
  for (auto& row : rows) {
    auto it = existing.find(row.machine_id);
    Remains remains;
    remains.alive = it != existing.end() && it->second != engine::MachineState::kExited;
    remains.present = it != existing.end();
    auto mark = std::ranges::find(marked, store::KeyOf(row), &Doomed::key);
    if (mark != marked.end()) remains.doomed = *mark;
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

Task<> ServiceImpl::RollBack(store::Session row, bool present) {
  log::Info("create of {} was not finished: undone", row.sandbox);
  if (present) {
    auto destroyed = co_await DestroyMachine(row.machine_id);
    if (!destroyed) log::Error("machine {}: {}", row.machine_id, destroyed.error().message);
    if (!destroyed) co_return destroyed;
  }
  auto undo = [row = std::move(row)](store::Store& store) { return UndoSession(store, row, "the server ended"); };
  co_return co_await core_.Db(std::move(undo));
}

// A sandbox without its variables can still be used and stopped; one that is not recovered cannot.
std::map<std::string, std::string> ServiceImpl::OpenEnv(const store::Sandbox& sandbox) const {
  auto env = core_.vault.OpenEnv(sandbox.env, OwnerOf(store::KeyOf(sandbox)));
  if (env) return *std::move(env);
  log::Error("sandbox {}: its variables are lost: {}", sandbox.name, env.error().message);
  return {};
}

Task<> ServiceImpl::RecoverSession(store::Session row, Remains remains, Result<>* failure) {
  auto read = [key = store::KeyOf(row)](store::Store& store) { return store.FindSandbox(key); };
  auto sandbox = co_await core_.Db(std::move(read));
  auto pending = [id = row.id](store::Store& store) { return store.UnfinishedCommands(id); };
  auto commands = co_await core_.Db(std::move(pending));
  if (!sandbox || !commands) {
    *failure = std::unexpected(sandbox ? commands.error() : sandbox.error());
    co_return *failure;
  }
  // The operator may count an engine differently from now on; what a session says of itself has to be true today.
  const engine::EngineInfo engine = core_.ladder.Of(row.engine, row.nesting);
  const int today = engine.isolation_class;
  if (row.isolation_class != today) {
    row.isolation_class = today;
    auto relabel = [row](store::Store& store) {
      auto mirror = [&row](store::Sandbox& s) -> Result<> {
        if (s.current_session == row.id) s.isolation_class = row.isolation_class;
        return {};
      };
      return store.SaveSession(row, mirror);
    };
    auto relabelled = co_await core_.Db(std::move(relabel));
    if (!relabelled) *failure = std::unexpected(std::move(relabelled).error());
    if (!*failure) co_return *failure;
  }
  const bool weak = (row.nesting && !engine.no_nesting.empty()) ||
                    (*sandbox && !Meets((**sandbox).isolation, row.engine, row.isolation_class, row.nesting));
  const bool expired = NowMs() >= row.started_at.value_or(row.created_at) + row.timeout_ms;
  const bool stopping = row.status == store::Status::kStopping || row.status == store::Status::kSnapshotting;
  const std::string reason = row.stop_reason;
  const std::string id = row.id;
  auto inherited = co_await InheritedBytes(row, UINT64_MAX);
  auto session = AddLive(std::move(row), *sandbox ? OpenEnv(**sandbox) : std::map<std::string, std::string>{});
  if (*sandbox) session->SetIdleTimeout((**sandbox).idle_timeout_ms);
  session->NoteInherited(inherited.value_or(0));
  // Before its clock or its listener ask for a stop that keeps something. It waits for "started", as all do.
  const bool doomed = remains.doomed && *sandbox && remains.doomed->Means(**sandbox);
  if (doomed && !stopping) RequestStop(id, StopCause::kRequested, "deleted", KeepNothing());
  Result<> attached = co_await session->Reattach(*std::move(commands), remains.present, remains.alive);
  if (core_.closing) co_return attached;
  if (!attached) log::Warn("session {}: {}", id, attached.error().message);
  // The server before us may have ended between the record of the session and this.
  if (attached && session->live()) {
    const engine::Owner owner = DiskOwner(core_, session->row().team, session->row().project);
    auto assigned = co_await session->live()->machine().Assign(owner);
    if (!assigned) log::Warn("session {}: its disk counts for no project: {}", id, assigned.error().message);
  }
  // The stop waits for "started", success or not: what could not be attached is ended all the same.
  session->started()->Set(true);
  if (stopping) {
    RequestStop(id, StopCause::kRequested, reason);
  } else if (expired) {
    RequestStop(id, StopCause::kTimeout, "timeout");
  } else if (weak) {
    RequestStop(id, StopCause::kRequested, "this server does not meet the demanded isolation any more");
  } else if (!attached) {
    RequestStop(id, StopCause::kLost, "machine lost: " + attached.error().message);
  }
  // A live one is ready now; one that ends does so in the background.
  co_return Result<>{};
}

Task<> ServiceImpl::DestroyLeftover(std::string machine_id, bool started) {
  auto find = [machine_id](store::Store& store) { return store.FindSessionByMachine(machine_id); };
  SB_CO_TRY(auto owner, co_await core_.Db(std::move(find)));
  if (owner) {
    log::Info("machine {} of a finished session: destroyed", machine_id);
    co_return co_await DestroyMachine(std::move(machine_id));
  }
  if (!started) {
    log::Info("machine {} was never started, and no row names it: destroyed", machine_id);
    co_return co_await DestroyMachine(std::move(machine_id));
  }
  log::Warn("machine {} has no record: frozen and left alone; was the database replaced?", machine_id);
  SB_CO_TRY(auto machine, co_await core_.deps.engine->Attach(machine_id));
  co_return co_await machine->Pause();
}

}  // namespace sandbar::sandbox
