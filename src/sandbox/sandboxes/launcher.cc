#include "sandbox/sandboxes/launcher.h"

#include <fmt/format.h>

#include "base/ids.h"
#include "base/log.h"
#include "sandbox/drives/drive_records.h"
#include "sandbox/project_limits.h"
#include "sandbox/sessions/pool.h"
#include "sandbox/snapshots/retention.h"

namespace sandbar::sandbox {

Result<store::Session> Launcher::MakeSession(const store::Sandbox& sandbox, const BootSource& source) const {
  SB_TRY(const engine::EngineInfo engine, core_->engines.Pick(sandbox.isolation, source.format));
  if (engine.format == engine::RootfsFormat::kBlock && sandbox.mounts.size() > kMaxBlockMounts)
    return Fail(
        Code::kBadRequest,
        fmt::format("mounts: the engine {} takes at most {}, got {}: a microVM has 8 virtio slots, and 5 are taken "
                    "by image, disk, agent, network and random numbers",
                    engine.name, kMaxBlockMounts, sandbox.mounts.size()));
  store::Session s;
  SetSource(source, engine.format, s);
  s.id = NewId("sbx_");
  s.sandbox = sandbox.name;
  s.team = sandbox.team;
  s.project = sandbox.project;
  s.vcpus = sandbox.vcpus;
  s.memory_mb = sandbox.memory_mb;
  s.region = sandbox.region;
  s.timeout_ms = sandbox.timeout_ms;
  s.requested_at = s.created_at = s.updated_at = NowMs();
  s.engine = engine.name;
  s.isolation_class = engine.isolation_class;
  s.nesting = sandbox.isolation.nesting;
  return s;
}

Task<> Launcher::FitFormats(store::Session row, engine::Rootfs* rootfs) {
  if (!row.source_snapshot.empty()) {
    SB_CO_TRY(auto snapshot, co_await core_->directory->FindSnapshot(row.source_snapshot));
    const engine::RootfsFormat need = core_->engines.Of(row.engine).format;
    if (snapshot && FormatOf(*snapshot) != need) {
      SB_CO_TRY(rootfs->snapshots, co_await converter_->Layers(*std::move(snapshot), need));
    }
  }
  co_return co_await converter_->Drives(std::move(row), rootfs);
}

engine::BootRequest Launcher::RequestOf(const store::Session& row) const {
  engine::BootRequest request = BootOf(*core_, row.engine, row.vcpus);
  request.machine_id = row.machine_id;
  request.nesting = row.nesting;
  request.owner = DiskOwner(*core_, row.team, row.project);
  // Should we die before the session runs, the spawner ends what nobody asked for.
  request.deadline = std::chrono::milliseconds(row.timeout_ms) + std::chrono::minutes(1);
  return request;
}

Booting Launcher::BeginBoot(const store::Session& row) {
  auto booting = std::make_shared<SharedResult<std::unique_ptr<engine::Machine>>>(core_->ex);
  core_->tasks.Spawn(Produce(booting, core_->deps.engine->Boot(RequestOf(row))));
  return booting;
}

Task<> Launcher::DropBooted(Booting booting) {
  SB_CO_TRY(auto machine, co_await booting->Take());
  if (core_->closing) co_return Result<>{};
  ConnectedMachine connected(core_, std::move(machine));
  auto destroyed = co_await connected.Destroy();
  if (!destroyed) log::Error("machine {}: not destroyed: {}", connected.id(), destroyed.error().message);
  co_return Result<>{};
}

// Whoever claims a machine of the pool pays for its disk.
Task<std::unique_ptr<ConnectedMachine>> Launcher::Claim(std::unique_ptr<ConnectedMachine> pooled, store::Session row) {
  const engine::Owner owner = DiskOwner(*core_, row.team, row.project);
  auto assigned = co_await pooled->machine().Assign(owner);
  if (assigned) co_return pooled;
  co_await pooled->Destroy();
  co_return std::unexpected(std::move(assigned).error());
}

Task<std::unique_ptr<ConnectedMachine>> Launcher::Boot(std::shared_ptr<Session> session, Booting booting,
                                                       std::string memory_snapshot, StepTimes* steps) {
  engine::BootRequest request = RequestOf(session->row());
  auto rootfs = RootfsOf(session->row());
  if (!memory_snapshot.empty()) {
    rootfs.snapshots = {std::move(memory_snapshot)};
    rootfs.memory = true;
  } else if (!booting) {
    // A guess leaves the machine at least half of its limit; the scan that is under way corrects it.
    SB_CO_TRY(rootfs.inherited_bytes, co_await disk_->InheritedBytes(session->row(), core_->config.disk_bytes / 2));
    session->NoteInherited(rootfs.inherited_bytes);
    SB_CO_TRYV(co_await FitFormats(session->row(), &rootfs));
  }
  auto booted = booting ? booting->Take() : core_->deps.engine->Boot(request);
  co_return co_await ConnectedMachine::Start(core_, std::move(request), std::move(rootfs), std::move(booted), steps);
}

Task<SandboxView> Launcher::Start(std::shared_ptr<Session> session, store::Sandbox sandbox, Launch launch) {
  std::string memory = launch.restored ? launch.restored->snapshot : "";
  const bool claims = launch.pooled != nullptr;
  auto machine = launch.pooled ? Claim(std::move(launch.pooled), session->row())
                               : Boot(session, std::move(launch.booting), std::move(memory), launch.steps);
  SB_CO_TRY(auto connected, co_await std::move(machine));
  if (launch.steps != nullptr && claims) launch.steps->Done("claim");
  SB_CO_TRYV(co_await session->Run(std::move(connected), std::move(launch.source), std::move(launch.restored)));
  if (launch.steps != nullptr) launch.steps->Done("session");
  SandboxView view;
  view.session = session->row();
  view.sandbox = std::move(sandbox);
  view.sandbox.current_session = view.session.id;
  view.sandbox.engine = view.session.engine;
  view.sandbox.isolation_class = view.session.isolation_class;
  view.sandbox.status = view.session.status;
  view.sandbox.updated_at = view.sandbox.status_updated_at = view.session.updated_at;
  co_return view;
}

Task<> Launcher::Undo(std::shared_ptr<Session> session, Error why) {
  // On shutdown the rows stay: the next start rolls back, and it can be sure of what exists.
  if (core_->closing) co_return Result<>{};
  const std::string machine = session->row().machine_id;
  auto discarded = co_await session->Discard();
  if (core_->closing) co_return discarded;
  bool left = !discarded;
  if (!left) {
    auto machines = co_await core_->deps.engine->List();
    for (const auto& m : machines ? *machines : std::vector<engine::MachineInfo>{}) left |= m.machine_id == machine;
  }
  Result<> cleaned;
  if (left) {
    // A machine that would not die keeps its row, so that the next start destroys it.
    log::Error("create failed ({}), and machine {} is still there", why.message, machine);
    auto fail = [row = session->row(), message = why.message](store::Store& store) mutable {
      row.status = store::Status::kFailed;
      row.stop_reason = "create failed: " + message;
      row.stopped_at = row.aborted_at = NowMs();
      auto mirror = [id = row.id](store::Sandbox& s) -> Result<> {
        if (s.current_session == id) s.status = store::Status::kFailed;
        return {};
      };
      auto saved = store.SaveSession(row, mirror);
      return saved ? Result<>{} : Result<>(std::unexpected(std::move(saved).error()));
    };
    cleaned = co_await core_->Combined(std::move(fail));
  } else {
    auto undo = [row = session->row(), message = why.message](store::Store& store) {
      return UndoSession(store, row, message);
    };
    cleaned = co_await core_->Combined(std::move(undo));
  }
  if (!cleaned) log::Error("undo of {}: {}", session->row().id, cleaned.error().message);
  active_->Remove(session->row().id);
  session->started()->Set(Fail(Code::kNotFound, "the sandbox could not be created: " + why.message));
  co_return cleaned;
}

}  // namespace sandbar::sandbox
