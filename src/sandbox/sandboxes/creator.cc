#include "sandbox/sandboxes/creator.h"

#include <fmt/format.h>

#include "base/ids.h"
#include "base/log.h"
#include "sandbox/drives/drive_records.h"
#include "sandbox/seals.h"
#include "sandbox/sessions/network.h"
#include "sandbox/snapshots/retention.h"
#include "sandbox/validate.h"

namespace sandbar::sandbox {

Task<SandboxView> Creator::Create(Scope scope, CreateSpec spec) {
  if (scope.team.empty() || scope.project.empty()) co_return Fail(Code::kBadRequest, "projectId: is required");
  SB_CO_TRY(auto sandbox, CheckCreate(spec, core_->config));
  NewSandbox wanted;
  // Said before a machine is made for nothing.
  if (spec.source) SB_CO_TRYV(PlanSource(*spec.source));
  if (spec.network) {
    SB_CO_TRY(wanted.policy, egress::Compile(*spec.network));
  }
  SB_CO_TRY(wanted.boot, co_await sources_->Find(&spec, scope));
  wanted.record = std::move(sandbox);
  wanted.source = std::move(spec.source);
  co_return co_await CreateFrom(std::move(scope), std::move(wanted));
}

Task<SandboxView> Creator::CreateFrom(Scope scope, NewSandbox wanted) {
  StepTimes steps;
  const BootSource& boot = wanted.boot;
  const images::Image& image = boot.image;
  store::Sandbox& sandbox = wanted.record;
  SB_CO_TRY(auto place, active_->Reserve());
  Pool::Hold hold(pool_);
  // A fork's record is a copy of its source's, and yet another sandbox.
  sandbox.id = store::NewSandboxId();
  sandbox.version = 0;
  sandbox.team = scope.team;
  sandbox.project = scope.project;
  sandbox.runtime = image.runtime;
  sandbox.image = PinnedName(image);
  sandbox.cwd = image.cwd;
  sandbox.current_snapshot = boot.snapshot;
  SB_CO_TRY(store::Session row, launcher_->MakeSession(sandbox, boot));
  sandbox.current_session = row.id;
  sandbox.engine = row.engine;
  sandbox.isolation_class = row.isolation_class;
  if (sandbox.name.empty()) sandbox.name = sandbox.v1 ? row.id : NewSandboxName();
  row.sandbox = sandbox.name;
  if (wanted.policy) {
    sandbox.network = SealPolicy(core_->vault, wanted.policy->policy(), SealOwner(sandbox));
    row.network = SealPolicy(core_->vault, wanted.policy->policy(), SealOwner(row));
  }
  auto env = std::exchange(sandbox.env, core_->vault.SealEnv(sandbox.env, SealOwner(sandbox)));
  sandbox.created_at = sandbox.updated_at = sandbox.status_updated_at = row.created_at;

  // The pool has machines of the default engine without anything special.
  const bool plain = boot.snapshot.empty() && sandbox.mounts.empty() && !wanted.restored;
  const bool default_machine = plain && !row.nesting && row.engine == core_->engines.default_engine().name;
  auto pooled = default_machine ? pool_->Take(image, sandbox.vcpus) : nullptr;
  row.machine_id = pooled ? pooled->id() : NewLabel("m-", 16);
  if (pooled && !wanted.source) {
    // Claimed and running in one commit: after a crash, recovery arms the deadlines that we have not armed yet.
    row.status = sandbox.status = store::Status::kRunning;
    row.started_at = row.created_at;
  }
  // What has to be converted first may take longer than a machine waits.
  auto booting = plain && !pooled ? launcher_->BeginBoot(row) : nullptr;
  const std::string claimed = pooled ? row.machine_id : "";
  auto insert = [sandbox, row, claimed,
                 limit = core_->config.max_sandboxes](store::Store& store) mutable -> Result<store::Session> {
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
  steps.Done("prepare");
  auto inserted = co_await core_->Combined(std::move(insert));
  // The boot goes on meanwhile: its own step is what is left of it after this one.
  steps.Done("record");
  if (!inserted && booting) co_await launcher_->DropBooted(booting);
  place.reset();
  if (!inserted) {
    if (pooled) pool_->PutBack(image, sandbox.vcpus, std::move(pooled));
    co_return std::unexpected(std::move(inserted).error());
  }
  auto session = stopper_->Add(*std::move(inserted), std::move(env));
  session->clock().SetIdleTimeout(sandbox.idle_timeout_ms);
  Launch launch{std::move(pooled), std::move(booting), std::move(wanted.source), std::move(wanted.restored), &steps};
  auto launched = co_await launcher_->Start(session, std::move(sandbox), std::move(launch));
  if (launched) {
    log::Debug("create of {}: {}", session->row().id, steps.Text());
    co_return launched;
  }
  Error why = launched.error();
  co_await launcher_->Undo(session, std::move(why));
  co_return launched;
}

}  // namespace sandbar::sandbox
