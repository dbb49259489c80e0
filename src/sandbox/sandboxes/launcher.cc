// Create: check, resolve the image, record the intent while a machine is booted (or claim one), run.
#include <fmt/format.h>

#include "base/ids.h"
#include "base/log.h"
#include "sandbox/drives/drive_records.h"
#include "sandbox/service_impl.h"
#include "sandbox/sessions/network.h"
#include "sandbox/snapshots/retention.h"
#include "sandbox/validate.h"

namespace sandbar::sandbox {

Task<SandboxView> ServiceImpl::Create(Scope scope, CreateSpec spec) {
  auto work = CreateNow(std::move(scope), std::move(spec));
  co_return co_await RunToEnd(&tasks_, std::move(work));
}

Task<images::Image> ServiceImpl::ResolveImage(bool v1, std::optional<std::string> image,
                                              std::optional<std::string> runtime) {
  if (v1 && !image && !runtime) runtime = core_.config.default_runtime;
  auto resolve = [images = core_.deps.images, image = image.value_or(core_.config.default_image), runtime] {
    return runtime ? images->ResolveRuntime(*runtime) : images->ResolveImage(image);
  };
  if (core_.deps.images->fresh()) co_return resolve();
  co_return co_await core_.Files(std::move(resolve));
}

ServiceImpl::Base ServiceImpl::BaseOf(const store::Snapshot& s) const {
  Base base;
  const size_t at = s.image.rfind('@');
  base.image.name = s.image.substr(0, at);
  base.image.digest = at == std::string::npos ? "" : s.image.substr(at + 1);
  base.image.layers = s.image_layers;
  base.image.user = s.user;
  base.image.home = s.home;
  base.image.cwd = s.cwd;
  base.image.runtime = s.runtime;
  base.image.uid = s.uid;
  base.image.gid = s.gid;
  base.image.env = s.image_env;
  base.snapshot_layers = s.snapshot_layers;
  base.snapshot = s.id;
  base.format = FormatOf(s);
  return base;
}

Task<ServiceImpl::Base> ServiceImpl::ResolveBase(const CreateSpec* spec, Scope scope) {
  Base base;
  if (spec->source_snapshot) {
    // It has its own image. Clients send `image` or `runtime` all the same; the answer says what the sandbox got.
    SB_CO_TRY(auto snapshot, co_await UsableSnapshot(std::move(scope), *spec->source_snapshot));
    SB_CO_TRYV(co_await CheckFits(snapshot));
    base = BaseOf(snapshot);
  } else {
    SB_CO_TRY(base.image, co_await ResolveImage(spec->v1, spec->image, spec->runtime));
  }
  co_return base;
}

Result<store::Session> ServiceImpl::MakeSession(const store::Sandbox& sandbox, const Base& base) {
  SB_TRY(const engine::EngineInfo engine, core_.ladder.Pick(sandbox.isolation, base.format));
  if (engine.format == engine::RootfsFormat::kBlock && sandbox.mounts.size() > kMaxBlockMounts)
    return Fail(
        Code::kBadRequest,
        fmt::format("mounts: the engine {} takes at most {}, got {}: a microVM has 8 virtio slots, and 5 are taken "
                    "by image, disk, agent, network and random numbers",
                    engine.name, kMaxBlockMounts, sandbox.mounts.size()));
  const images::Image& image = base.image;
  store::Session s;
  s.image_layers = image.layers;
  s.snapshot_layers = LayersIn(base.snapshot_layers, base.format.value_or(engine.format), engine.format);
  s.source_snapshot = base.snapshot;
  s.id = NewId("sbx_");
  s.sandbox = sandbox.name;
  s.team = sandbox.team;
  s.project = sandbox.project;
  s.vcpus = sandbox.vcpus;
  s.memory_mb = sandbox.memory_mb;
  s.region = sandbox.region;
  s.runtime = image.runtime;
  s.image = PinnedName(image);
  s.cwd = image.cwd;
  s.timeout_ms = sandbox.timeout_ms;
  s.requested_at = s.created_at = s.updated_at = NowMs();
  s.engine = engine.name;
  s.isolation_class = engine.isolation_class;
  s.nesting = sandbox.isolation.nesting;
  s.user = image.user;
  s.home = image.home;
  s.uid = image.uid;
  s.gid = image.gid;
  s.image_env = image.env;
  return s;
}

std::shared_ptr<Session> ServiceImpl::AddLive(store::Session row, std::map<std::string, std::string> env) {
  auto stop = [this, id = row.id](StopCause cause, std::string why) {
    if (!core_.closing) RequestStop(id, cause, std::move(why));
  };
  auto session = std::make_shared<Session>(&core_, std::move(row), std::move(env), std::move(stop));
  sessions_[session->row().id] = Live{session, nullptr};
  core_.logs.Own(session->row().id, session->row().team + "/" + session->row().project);
  return session;
}

Task<SandboxView> ServiceImpl::CreateNow(Scope scope, CreateSpec spec) {
  if (scope.team.empty() || scope.project.empty()) co_return Fail(Code::kBadRequest, "projectId: is required");
  SB_CO_TRY(auto sandbox, CheckCreate(spec, core_.config));
  NewSandbox wanted;
  // Said before a machine is made for nothing.
  if (spec.source) SB_CO_TRYV(PlanSource(*spec.source));
  if (spec.network) {
    SB_CO_TRY(wanted.policy, egress::Compile(*spec.network));
  }
  SB_CO_TRY(wanted.base, co_await ResolveBase(&spec, scope));
  wanted.record = std::move(sandbox);
  wanted.source = std::move(spec.source);
  co_return co_await CreateFrom(std::move(scope), std::move(wanted));
}

Task<SandboxView> ServiceImpl::CreateFrom(Scope scope, NewSandbox wanted) {
  const Base& base = wanted.base;
  const images::Image& image = base.image;
  store::Sandbox& sandbox = wanted.record;
  if (sessions_.size() + creating_ >= core_.config.max_running) {
    co_return Fail(Code::kTooMany, fmt::format("{} sandboxes are running, the server's limit (max_running) is {}",
                                               sessions_.size(), core_.config.max_running));
  }
  Pool::Hold hold(&pool_);
  sandbox.team = scope.team;
  sandbox.project = scope.project;
  sandbox.runtime = image.runtime;
  sandbox.image = PinnedName(image);
  sandbox.cwd = image.cwd;
  sandbox.current_snapshot = base.snapshot;
  SB_CO_TRY(store::Session row, MakeSession(sandbox, base));
  sandbox.current_session = row.id;
  sandbox.engine = row.engine;
  sandbox.isolation_class = row.isolation_class;
  if (sandbox.name.empty()) sandbox.name = sandbox.v1 ? row.id : NewSandboxName();
  row.sandbox = sandbox.name;
  if (wanted.policy) {
    sandbox.network = SealPolicy(core_.vault, wanted.policy->policy(), OwnerOf(store::KeyOf(sandbox)));
    row.network = SealPolicy(core_.vault, wanted.policy->policy(), OwnerOf(row));
  }
  auto env = std::exchange(sandbox.env, core_.vault.SealEnv(sandbox.env, OwnerOf(store::KeyOf(sandbox))));
  sandbox.created_at = sandbox.updated_at = sandbox.status_updated_at = row.created_at;

  // Machines stand ready for the usual case only.
  const bool plain = base.snapshot.empty() && sandbox.mounts.empty() && !wanted.heritage;
  const bool usual = plain && !row.nesting && row.engine == core_.ladder.usual().name;
  auto pooled = usual ? pool_.Take(image, sandbox.vcpus) : nullptr;
  row.machine_id = pooled ? pooled->id() : NewLabel("m-", 16);
  if (pooled && !wanted.source) {
    // Claimed and running in one commit: after a crash, recovery arms the deadlines that we have not armed yet.
    row.status = sandbox.status = store::Status::kRunning;
    row.started_at = row.created_at;
  }
  ++creating_;
  // What has to be converted first may take longer than a machine waits.
  auto booting = plain && !pooled ? BeginBoot(row) : nullptr;
  const std::string claimed = pooled ? row.machine_id : "";
  auto insert = [sandbox, row, claimed,
                 limit = core_.config.max_sandboxes](store::Store& store) mutable -> Result<store::Session> {
    SB_TRY(const uint64_t records, store.CountSandboxes());
    if (records >= limit) {
      return Fail(Code::kTooMany,
                  fmt::format("this server holds {} sandboxes, its limit (max_sandboxes) is {}", records, limit));
    }
    SB_TRYV(AttachDrives(store, sandbox, row));
    if (!row.source_snapshot.empty()) SB_TRYV(MarkUsed(store, row.source_snapshot));
    auto created = store.CreateSandbox(sandbox, row, claimed);
    if (created) return row;
    if (created.error().code != Code::kConflict) return std::unexpected(std::move(created).error());
    return Fail(Code::kNameTaken,
                "a sandbox named \"" + sandbox.name +
                    "\" exists already in this project: choose another name, or delete that one first");
  };
  auto inserted = co_await core_.Db(std::move(insert));
  if (!inserted && booting) co_await DropBooted(booting);
  --creating_;
  if (!inserted) {
    if (pooled) pool_.PutBack(image, sandbox.vcpus, std::move(pooled));
    co_return std::unexpected(std::move(inserted).error());
  }
  auto session = AddLive(*std::move(inserted), std::move(env));
  session->SetIdleTimeout(sandbox.idle_timeout_ms);
  auto launched = co_await Launch(session, std::move(sandbox), std::move(pooled), std::move(booting),
                                  std::move(wanted.source), std::move(wanted.heritage));
  if (launched) co_return launched;
  Error why = launched.error();
  co_await Undo(session, std::move(why));
  co_return launched;
}

Task<> ServiceImpl::FitFormats(store::Session row, engine::Rootfs* rootfs) {
  if (!row.source_snapshot.empty()) {
    auto find = [id = row.source_snapshot](store::Store& store) { return store.FindSnapshot(id); };
    SB_CO_TRY(auto snapshot, co_await core_.Db(std::move(find)));
    const engine::RootfsFormat need = core_.ladder.Of(row.engine).format;
    if (snapshot && FormatOf(*snapshot) != need) {
      SB_CO_TRY(rootfs->snapshots, co_await formats_.Layers(*std::move(snapshot), need));
    }
  }
  co_return co_await formats_.Drives(std::move(row), rootfs);
}

engine::BootRequest ServiceImpl::RequestOf(const store::Session& row) const {
  engine::BootRequest request = BootOf(core_, row.engine, row.vcpus);
  request.machine_id = row.machine_id;
  request.nesting = row.nesting;
  request.owner = DiskOwner(core_, row.team, row.project);
  // Should we die before the session runs, the supervisor ends what nobody asked for.
  request.deadline = std::chrono::milliseconds(row.timeout_ms) + std::chrono::minutes(1);
  return request;
}

ServiceImpl::Booting ServiceImpl::BeginBoot(const store::Session& row) {
  auto booting = std::make_shared<Outcome<std::unique_ptr<engine::Machine>>>(core_.ex);
  tasks_.Spawn(Produce(booting, core_.deps.engine->Boot(RequestOf(row))));
  return booting;
}

Task<> ServiceImpl::DropBooted(Booting booting) {
  SB_CO_TRY(auto machine, co_await booting->Take());
  if (core_.closing) co_return Result<>{};
  LiveMachine live(&core_, std::move(machine));
  auto destroyed = co_await live.Destroy();
  if (!destroyed) log::Error("machine {}: not destroyed: {}", live.id(), destroyed.error().message);
  co_return Result<>{};
}

Task<SandboxView> ServiceImpl::Launch(std::shared_ptr<Session> session, store::Sandbox sandbox,
                                      std::unique_ptr<LiveMachine> pooled, Booting booting,
                                      std::optional<SourceSpec> source, std::optional<Heritage> heritage) {
  auto live = std::move(pooled);
  if (live) {
    const engine::Owner owner = DiskOwner(core_, sandbox.team, sandbox.project);
    auto assigned = co_await live->machine().Assign(owner);
    if (!assigned) {
      co_await live->Destroy();
      co_return std::unexpected(std::move(assigned).error());
    }
  } else {
    engine::BootRequest request = RequestOf(session->row());
    auto rootfs = RootfsOf(session->row());
    if (heritage) {
      rootfs.snapshots = {heritage->snapshot};
      rootfs.memory = true;
    } else if (!booting) {
      // A guess leaves the machine at least half of its limit; the scan that is under way corrects it.
      SB_CO_TRY(rootfs.inherited_bytes, co_await InheritedBytes(session->row(), core_.config.disk_bytes / 2));
      session->NoteInherited(rootfs.inherited_bytes);
      SB_CO_TRYV(co_await FitFormats(session->row(), &rootfs));
    }
    auto booted = booting ? booting->Take() : core_.deps.engine->Boot(request);
    SB_CO_TRY(live, co_await LiveMachine::Start(&core_, std::move(request), std::move(rootfs), std::move(booted)));
  }
  SB_CO_TRYV(co_await session->Run(std::move(live), std::move(source), std::move(heritage)));
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

Task<> ServiceImpl::Undo(std::shared_ptr<Session> session, Error why) {
  // On shutdown the rows stay: the next start rolls back, and it can be sure of what exists.
  if (core_.closing) co_return Result<>{};
  const std::string machine = session->row().machine_id;
  auto discarded = co_await session->Discard();
  if (core_.closing) co_return discarded;
  bool left = !discarded;
  if (!left) {
    auto machines = co_await core_.deps.engine->List();
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
    cleaned = co_await core_.Db(std::move(fail));
  } else {
    auto undo = [row = session->row(), message = why.message](store::Store& store) {
      return UndoSession(store, row, message);
    };
    cleaned = co_await core_.Db(std::move(undo));
  }
  if (!cleaned) log::Error("undo of {}: {}", session->row().id, cleaned.error().message);
  sessions_.erase(session->row().id);
  session->started()->Set(Fail(Code::kNotFound, "the sandbox could not be created: " + why.message));
  co_return cleaned;
}

}  // namespace sandbar::sandbox
