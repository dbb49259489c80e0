// Sessions that go on from a snapshot: resume, and fork.
#include <fmt/format.h>

#include "base/ids.h"
#include "base/log.h"
#include "sandbox/drives/drive_records.h"
#include "sandbox/service_impl.h"
#include "sandbox/sessions/network.h"
#include "sandbox/snapshots/retention.h"
#include "sandbox/validate.h"

namespace sandbar::sandbox {

// Unknown, foreign, deleted and expired ones answer alike: there is nothing to boot from.
Task<store::Snapshot> ServiceImpl::UsableSnapshot(Scope scope, std::string id) {
  auto find = [id](store::Store& store) { return store.FindSnapshot(id); };
  SB_CO_TRY(auto snapshot, co_await core_.Db(std::move(find)));
  const bool there = snapshot && InScope(scope, snapshot->team, snapshot->project) && !snapshot->deleted;
  const bool expired = there && snapshot->expires_at().value_or(INT64_MAX) <= NowMs();
  if (!there || expired) co_return Fail(Code::kSnapshotGone, "snapshot " + id.substr(0, 64) + " does not exist");
  SB_CO_TRYV(co_await RefuseDamaged(*snapshot));
  co_return *std::move(snapshot);
}

Result<egress::PolicyRef> ServiceImpl::PolicyOf(const store::Sandbox& sandbox) const {
  if (!sandbox.network) return egress::PolicyRef{};
  return OpenPolicy(core_.vault, *sandbox.network, OwnerOf(store::KeyOf(sandbox)));
}

// The files are more important than the network: a policy that cannot be used does not keep a sandbox from starting.
Task<egress::PolicyRef> ServiceImpl::PolicyToStartWith(store::Sandbox sandbox) {
  auto policy = PolicyOf(sandbox);
  if (policy) co_return policy;
  log::Error("sandbox {}: its network policy cannot be used, nothing is allowed until it is set again: {}",
             sandbox.name, policy.error().message);
  auto notice = PolicyUnusable(store::KeyOf(sandbox), policy.error().message);
  auto add = [notice = std::move(notice)](store::Store& store) { return store.AddNotice(notice); };
  SB_CO_TRYV(co_await core_.Db(std::move(add)));
  co_return egress::DenyAll();
}

Task<SandboxView> ServiceImpl::ResumeNow(store::Sandbox sandbox, ResumeFrom from) {
  if (sandbox.current_snapshot.empty()) {
    co_return Fail(Code::kSnapshotMissing,
                   "sandbox \"" + sandbox.name + "\" has stopped and has no snapshot to resume from");
  }
  Scope scope;
  scope.team = sandbox.team;
  scope.project = sandbox.project;
  SB_CO_TRY(auto snapshot, co_await UsableSnapshot(scope, sandbox.current_snapshot));
  SB_CO_TRY(auto heritage, MemoryOf(scope, snapshot, from));
  const bool memory = heritage.has_value();
  if (sessions_.size() + creating_ >= core_.config.max_running) {
    co_return Fail(Code::kTooMany, fmt::format("{} sandboxes are running, the server's limit (max_running) is {}",
                                               sessions_.size(), core_.config.max_running));
  }
  SB_CO_TRY(store::Session row, MakeSession(sandbox, BaseOf(snapshot)));
  SB_CO_TRY(auto policy, co_await PolicyToStartWith(sandbox));
  if (policy) row.network = SealPolicy(core_.vault, policy->policy(), OwnerOf(row));
  row.machine_id = NewLabel("m-", 16);
  ++creating_;
  auto insert = [sandbox, row](store::Store& store) mutable -> Result<store::Session> {
    SB_TRYV(AttachDrives(store, sandbox, row));
    SB_TRYV(MarkUsed(store, row.source_snapshot));
    SB_TRYV(Claim(store, store::KeyOf(sandbox)));
    SB_TRYV(store.SaveSession(row, nullptr));
    return row;
  };
  auto inserted = co_await core_.Db(std::move(insert));
  --creating_;
  if (!inserted) co_return std::unexpected(std::move(inserted).error());
  auto env = OpenEnv(sandbox);
  auto session = AddLive(*std::move(inserted), std::move(env));
  session->SetIdleTimeout(sandbox.idle_timeout_ms);
  auto launched = co_await Launch(session, sandbox, nullptr, nullptr, std::nullopt, std::move(heritage));
  if (launched) {
    launched->resumed = true;
    Result<> dropped;
    if (!snapshot.memory.empty()) dropped = co_await DropMemory(snapshot);
    if (!dropped) log::Warn("snapshot {}: {}", snapshot.id, dropped.error().message);
    co_return launched;
  }
  Error why = launched.error();
  co_await Undo(session, why);
  if (!memory || core_.closing) co_return launched;
  // What the operator chose may fall back; what somebody asked for is refused.
  if (snapshot.memory == "kept" && from == ResumeFrom::kEither)
    co_return co_await ResumeFromDisk(std::move(sandbox), std::move(why.message));
  why.message += " (`from`: \"disk\", or sandbar resume --disk, starts it from its files)";
  co_return std::unexpected(std::move(why));
}

Task<SandboxView> ServiceImpl::Fork(Scope scope, std::string name, ForkSpec spec) {
  auto work = ForkNow(std::move(scope), std::move(name), std::move(spec));
  co_return co_await RunToEnd(&tasks_, std::move(work));
}

Task<SandboxView> ServiceImpl::ForkNow(Scope scope, std::string name, ForkSpec spec) {
  SB_CO_TRY(auto source, co_await FindSandbox(scope, std::move(name)));
  store::Sandbox fork = source;
  fork.name.clear();
  fork.v1 = false;
  fork.create_digest.clear();
  fork.status = store::Status::kPending;
  fork.total_egress = fork.total_ingress = fork.total_cpu_ms = fork.total_duration_ms = 0;
  if (spec.name) {
    SB_CO_TRYV(CheckName(*spec.name));
    fork.name = *spec.name;
  }
  // What is sealed for the source is opened here and sealed for the fork.
  NewSandbox wanted;
  auto policy = spec.changes.network ? egress::Compile(*spec.changes.network) : PolicyOf(source);
  if (!policy && !spec.changes.network) {
    co_return Fail(Code::kConflict, "the network policy of \"" + source.name + "\" cannot be used (" +
                                        policy.error().message + "): give the fork one of its own, or set another one");
  }
  SB_CO_TRY(wanted.policy, std::move(policy));
  fork.network.reset();
  fork.env = spec.changes.env.value_or(OpenEnv(source));
  // A fork's ports have names of their own.
  if (!spec.changes.ports) {
    spec.changes.ports.emplace();
    for (const store::PortRoute& route : source.routes) spec.changes.ports->push_back(route.port);
  }
  fork.routes.clear();
  SB_CO_TRYV(ApplyUpdate(spec.changes, core_.config, fork));
  const bool asked = spec.changes.persistent.value_or(false);
  fork.collect_after_ms = CollectAfter(fork, spec.name.has_value(), asked, core_.config.collect_unnamed_ms);
  if (source.collect_after_ms > 0) {
    auto claim = [key = store::KeyOf(source)](store::Store& store) { return Claim(store, key); };
    SB_CO_TRYV(co_await core_.Db(std::move(claim)));
  }
  if (spec.live) {
    wanted.record = std::move(fork);
    co_return co_await ForkLive(std::move(scope), std::move(source), std::move(wanted));
  }
  Base& base = wanted.base;
  if (source.current_snapshot.empty()) {
    SB_CO_TRY(base.image, co_await ResolveImage(false, source.image, std::nullopt));
  } else {
    SB_CO_TRY(auto snapshot, co_await UsableSnapshot(scope, source.current_snapshot));
    SB_CO_TRYV(co_await CheckFits(snapshot));
    base = BaseOf(snapshot);
  }
  wanted.record = std::move(fork);
  co_return co_await CreateFrom(std::move(scope), std::move(wanted));
}

}  // namespace sandbar::sandbox
