#include "sandbox/sandboxes/updater.h"

#include "base/ids.h"
#include "sandbox/drives/drive_records.h"
#include "sandbox/seals.h"
#include "sandbox/sessions/network.h"
#include "sandbox/snapshots/converter.h"
#include "sandbox/snapshots/retention.h"
#include "sandbox/validate.h"

namespace sandbar::sandbox {
namespace {

bool Ended(store::Status status) {
  return status == store::Status::kStopped || status == store::Status::kFailed || status == store::Status::kAborted;
}

}  // namespace

Task<> Updater::CheckDemand(Scope scope, std::string name, UpdateSpec spec) {
  SB_CO_TRY(auto sandbox, co_await records_->FindSandbox(scope, std::move(name)));
  store::Sandbox changed = sandbox;
  SB_CO_TRYV(ApplyUpdate(spec, core_->config, changed));
  if (changed.isolation == sandbox.isolation && !spec.current_snapshot) co_return Result<>{};
  std::optional<engine::RootfsFormat> format;
  const std::string id = spec.current_snapshot.value_or(sandbox.current_snapshot);
  if (!id.empty()) {
    SB_CO_TRY(auto snapshot, co_await records_->FindSnapshot(std::move(scope), id));
    format = FormatOf(snapshot);
  }
  SB_CO_TRYV(core_->engines.Pick(changed.isolation, format));
  const bool met = Meets(changed.isolation, sandbox.engine, sandbox.isolation_class, sandbox.isolation.nesting);
  if (met || !active_->Has(sandbox.current_session)) co_return Result<>{};
  co_return Fail(Code::kConflict,
                 "\"" + sandbox.name + "\" runs with less isolation than that: stop it first, then demand more");
}

Task<store::Sandbox> Updater::Update(Scope scope, std::string name, UpdateSpec spec) {
  if (scope.project.empty() || scope.team.empty()) co_return Fail(Code::kBadRequest, "projectId: is required");
  if (spec.current_snapshot) {
    auto usable = co_await sources_->FindSnapshot(scope, *spec.current_snapshot);
    if (!usable) co_return Fail(Code::kNotFound, "currentSnapshotId: there is no such snapshot in this project");
  }
  SB_CO_TRYV(co_await CheckDemand(scope, name, spec));
  const store::SandboxKey key{scope.team, scope.project, name};
  egress::PolicyRef policy;
  if (spec.network) {
    SB_CO_TRY(policy, egress::Compile(*spec.network));
  }
  const bool keeps = (spec.tags && !spec.tags->empty()) || spec.snapshot_expiration_ms || spec.keep_last_snapshots ||
                     spec.persistent.value_or(false);
  auto edit = [key, spec, policy, keeps, core = core_](store::Store& store) -> Result<store::Sandbox> {
    SB_TRY(auto before, store.FindSandbox(key));
    // While it runs, a change of its limits or network says nothing about its files; afterwards somebody looks after
    // it.
    if (keeps || (before && Ended(before->status))) SB_TRYV(Claim(store, key));
    if (before && spec.current_snapshot) SB_TRYV(MarkUsed(store, *spec.current_snapshot));
    auto apply = [&](store::Sandbox& row) -> Result<> {
      SB_TRYV(ApplyUpdate(spec, core->config, row));
      if (policy) row.network = SealPolicy(core->vault, policy->policy(), SealOwner(row));
      if (spec.env) row.env = core->vault.SealEnv(*spec.env, SealOwner(row));
      if (spec.current_snapshot) row.current_snapshot = *spec.current_snapshot;
      if (spec.mounts) SB_TRYV(FindMounts(store, row));
      row.updated_at = NowMs();
      return {};
    };
    return store.EditSandbox(key, apply);
  };
  SB_CO_TRY(auto sandbox, co_await core_->Combined(std::move(edit)));
  const auto session = active_->Find(sandbox.current_session);
  if (session && spec.env) session->SetEnv(*spec.env);
  if (session && spec.idle_timeout_ms) session->clock().SetIdleTimeout(*spec.idle_timeout_ms);
  co_return sandbox;
}

}  // namespace sandbar::sandbox
