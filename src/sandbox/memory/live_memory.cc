#include "sandbox/memory/live_memory.h"

namespace sandbar::sandbox {

Result<> LiveMemory::CheckSupported(const Session& session) const {
  SB_TRYV(session.Usable());
  const engine::EngineInfo here = core_->engines.Of(session.row().engine);
  if (!session.row().mounts.empty())
    return Fail(Code::kUnsupported, "a sandbox with drives cannot be kept with its memory; leave its mounts out");
  if (here.keeps_memory) return {};
  std::string can;
  for (const engine::EngineInfo& e : core_->engines.engines()) {
    if (e.keeps_memory)
      can += (can.empty() ? "" : ", ") + e.name + (e.usable ? "" : " (not usable here: " + e.why_not + ")");
  }
  return Fail(Code::kUnsupported, "the engine " + here.name +
                                      " cannot keep the memory of a machine; engines that can: " +
                                      (can.empty() ? "none" : can) + " (create the sandbox with `isolation`)");
}

Result<> LiveMemory::CheckFork(const Session& session, const store::Sandbox& fork) const {
  SB_TRYV(CheckSupported(session));
  const store::Session& source = session.row();
  if (fork.vcpus != source.vcpus || fork.memory_mb != source.memory_mb)
    return Fail(Code::kBadRequest, "resources: a live fork has the size of its source");
  if (fork.isolation.nesting != source.nesting)
    return Fail(Code::kBadRequest, "nesting: a live fork goes on as its source is");
  if (!fork.mounts.empty())
    return Fail(Code::kUnsupported, "mounts: a live fork goes on as it is and cannot get drives");
  return {};
}

Task<BootSource> LiveMemory::SourceFor(store::Session running, std::string head) {
  BootSource source = SourceOf(running);
  source.format = core_->engines.Of(running.engine).format;
  // The fork falls back to this snapshot when its machine is lost before it ever stopped, as the source would.
  Scope scope;
  scope.team = running.team;
  scope.project = running.project;
  auto usable = co_await sources_->FindSnapshot(std::move(scope), std::move(head));
  if (usable) source.snapshot = usable->id;
  co_return source;
}

Task<SandboxView> LiveMemory::Fork(Scope scope, store::Sandbox source, NewSandbox wanted) {
  const auto session = active_->Find(source.current_session);
  if (!session)
    co_return Fail(Code::kStopped,
                   "sandbox \"" + source.name + "\" does not run: only a running one can be forked live");
  SB_CO_TRYV(CheckFork(*session, wanted.record));
  const auto used = Session::Use(session);
  SB_CO_TRY(wanted.boot, co_await SourceFor(session->row(), source.current_snapshot));
  SB_CO_TRY(const std::string snapshot, co_await keeper_->BeginForkSnapshot());
  Result<SandboxView> forked = Fail(Code::kInternal, "");
  const std::vector<KeptContext> idle = session->contexts().Idle();
  const auto link = session->connected()->link();
  if (link) link->SetPaused(true);
  auto taken = co_await session->connected()->machine().SnapshotMemory(snapshot, true);
  if (link) link->SetPaused(false);
  if (taken) {
    wanted.restored = keeper_->MemoryIn(scope, snapshot, session->row().id);
    wanted.restored->contexts = StillIdle(idle, session->contexts().Idle());
    forked = co_await creator_->CreateFrom(std::move(scope), std::move(wanted));
    if (forked) forked->memory_snapshot = *taken;
  } else {
    forked = std::unexpected(taken.error());
  }
  // The fork has its own copy of all of it.
  co_await keeper_->EndForkSnapshot(snapshot);
  co_return forked;
}

Task<SandboxView> LiveMemory::Pause(Scope scope, std::string name) {
  SB_CO_TRY(auto sandbox, co_await records_->FindSandbox(scope, std::move(name)));
  SB_CO_TRY(auto session, co_await records_->FindActive(scope, sandbox.current_session));
  SB_CO_TRYV(CheckSupported(*session));
  if (session->row().image_layers.empty())
    co_return Fail(Code::kUnsupported, "this session was started by an older server and cannot be kept");
  Keep keep;
  keep.memory = true;
  auto stop = stopper_->Request(session->row().id, StopCause::kRequested, "paused", keep);
  if (!stop) co_return Fail(Code::kStopped, "the sandbox has stopped");
  SandboxView view;
  SB_CO_TRY(view.sandbox, co_await stop->Wait());
  view.session = session->row();
  if (view.session.snapshot.empty())
    co_return Fail(Code::kUnavailable, "the machine was lost before its files could be kept");
  SB_CO_TRY(view.snapshot, co_await records_->FindSnapshot(std::move(scope), view.session.snapshot));
  if (!view.snapshot->memory.empty()) co_return view;
  const std::string& why = session->memory_lost();
  co_return Fail(Code::kUnavailable, "the sandbox has stopped and its files are kept, but not its memory: " +
                                         (why.empty() ? "another stop came first" : why));
}

}  // namespace sandbar::sandbox
