// Looking things up, listing and editing records.
#include "base/ids.h"
#include "sandbox/drives/drive_records.h"
#include "sandbox/engine_selector.h"
#include "sandbox/service_impl.h"
#include "sandbox/sessions/network.h"
#include "sandbox/snapshots/retention.h"
#include "sandbox/tokens.h"
#include "sandbox/validate.h"

namespace sandbar::sandbox {
namespace {

// Unknown and foreign ids answer alike.
std::unexpected<Error> NoSession() {
  return Fail(Code::kNotFound, "session not found");
}

bool Ended(store::Status status) {
  return status == store::Status::kStopped || status == store::Status::kFailed || status == store::Status::kAborted;
}

template <class T>
Page<T> ToPage(store::Listing<T> listing) {
  return {std::move(listing.items), std::move(listing.next)};
}

}  // namespace

const ServiceImpl::Live* ServiceImpl::LiveOf(const std::string& session) const {
  auto it = sessions_.find(session);
  return it == sessions_.end() ? nullptr : &it->second;
}

Task<store::Sandbox> ServiceImpl::FindSandbox(Scope scope, std::string name) {
  if (scope.project.empty() || scope.team.empty()) co_return Fail(Code::kBadRequest, "projectId: is required");
  auto find = [key = store::SandboxKey{scope.team, scope.project, name}](store::Store& store) {
    return store.FindSandbox(key);
  };
  SB_CO_TRY(auto found, co_await core_.Db(std::move(find)));
  if (!found) co_return Fail(Code::kNotFound, "sandbox not found: " + name.substr(0, 128));
  co_return *std::move(found);
}

Task<store::Sandbox> ServiceImpl::SandboxOf(store::Session session) {
  auto find = [key = store::KeyOf(session)](store::Store& store) { return store.FindSandbox(key); };
  SB_CO_TRY(auto found, co_await core_.Db(std::move(find)));
  if (!found) co_return NoSession();
  co_return *std::move(found);
}

Task<store::Session> ServiceImpl::FindSession(Scope scope, std::string id) {
  if (const Live* live = LiveOf(id)) {
    const auto& row = live->session->row();
    if (!InScope(scope, row.team, row.project)) co_return NoSession();
    co_return row;
  }
  auto find = [id](store::Store& store) { return store.FindSession(id); };
  SB_CO_TRY(auto found, co_await core_.Db(std::move(find)));
  if (!found || !InScope(scope, found->team, found->project)) co_return NoSession();
  co_return *std::move(found);
}

// For calls that need the machine.
Task<std::shared_ptr<Session>> ServiceImpl::FindLive(Scope scope, std::string id) {
  SB_CO_TRY(auto row, co_await FindSession(std::move(scope), id));
  const Live* live = LiveOf(id);
  if (live == nullptr) co_return Fail(Code::kStopped, "the sandbox has stopped");
  auto session = live->session;
  if (session->phase() == Session::Phase::kStarting) {
    SB_CO_TRYV(co_await session->started()->Wait());
  }
  SB_CO_TRYV(session->Usable());
  co_return session;
}

Task<SandboxView> ServiceImpl::Get(Scope scope, std::string name, bool resume) {
  if (resume) co_return co_await Resume(std::move(scope), std::move(name), ResumeFrom::kEither);
  SandboxView view;
  SB_CO_TRY(view.sandbox, co_await FindSandbox(scope, name));
  SB_CO_TRY(view.session, co_await FindSession(std::move(scope), view.sandbox.current_session));
  co_return view;
}

Task<Page<store::Sandbox>> ServiceImpl::List(Scope scope, ListQuery query) {
  SB_CO_TRY(auto filter, CheckList(scope, query, false));
  auto list = [filter = std::move(filter)](store::Store& store) { return store.ListSandboxes(filter); };
  SB_CO_TRY(auto listing, co_await core_.Db(std::move(list)));
  co_return ToPage(std::move(listing));
}

Task<Page<store::Session>> ServiceImpl::ListSessions(Scope scope, ListQuery query) {
  SB_CO_TRY(auto filter, CheckList(scope, query, true));
  auto list = [filter = std::move(filter)](store::Store& store) { return store.ListSessions(filter); };
  SB_CO_TRY(auto listing, co_await core_.Db(std::move(list)));
  co_return ToPage(std::move(listing));
}

// An update that raises what the sandbox demands, or puts it on another snapshot: can that be kept?
Task<> ServiceImpl::CheckDemand(Scope scope, std::string name, UpdateSpec spec) {
  SB_CO_TRY(auto sandbox, co_await FindSandbox(scope, std::move(name)));
  store::Sandbox changed = sandbox;
  SB_CO_TRYV(ApplyUpdate(spec, core_.config, changed));
  if (changed.isolation == sandbox.isolation && !spec.current_snapshot) co_return Result<>{};
  Base base;
  const std::string id = spec.current_snapshot.value_or(sandbox.current_snapshot);
  if (!id.empty()) {
    SB_CO_TRY(auto snapshot, co_await GetSnapshot(std::move(scope), id));
    base = BaseOf(snapshot);
  }
  SB_CO_TRYV(core_.ladder.Pick(changed.isolation, base.format));
  const Live* live = LiveOf(sandbox.current_session);
  if (live == nullptr || Meets(changed.isolation, sandbox.engine, sandbox.isolation_class, sandbox.isolation.nesting))
    co_return Result<>{};
  co_return Fail(Code::kConflict,
                 "\"" + sandbox.name + "\" runs with less isolation than that: stop it first, then demand more");
}

Task<store::Sandbox> ServiceImpl::Update(Scope scope, std::string name, UpdateSpec spec) {
  if (scope.project.empty() || scope.team.empty()) co_return Fail(Code::kBadRequest, "projectId: is required");
  if (spec.current_snapshot) {
    auto usable = co_await UsableSnapshot(scope, *spec.current_snapshot);
    if (!usable) co_return Fail(Code::kNotFound, "currentSnapshotId: there is no such snapshot in this project");
  }
  SB_CO_TRYV(co_await CheckDemand(scope, name, spec));
  const store::SandboxKey key{scope.team, scope.project, name};
  std::optional<store::NetworkPolicyRow> network;
  if (spec.network) {
    SB_CO_TRY(auto policy, egress::Compile(*spec.network));
    network = SealPolicy(core_.vault, policy->policy(), OwnerOf(key));
  }
  const bool keeps = (spec.tags && !spec.tags->empty()) || spec.snapshot_expiration_ms || spec.keep_last_snapshots ||
                     spec.persistent.value_or(false);
  auto edit = [key, spec, network, keeps, core = &core_](store::Store& store) -> Result<store::Sandbox> {
    SB_TRY(auto before, store.FindSandbox(key));
    // While it runs, a change of its limits or network says nothing about its files; afterwards somebody looks after
    // it.
    if (keeps || (before && Ended(before->status))) SB_TRYV(Claim(store, key));
    if (before && spec.current_snapshot) SB_TRYV(MarkUsed(store, *spec.current_snapshot));
    auto apply = [&](store::Sandbox& row) -> Result<> {
      SB_TRYV(ApplyUpdate(spec, core->config, row));
      if (network) row.network = network;
      if (spec.env) row.env = core->vault.SealEnv(*spec.env, OwnerOf(key));
      if (spec.current_snapshot) row.current_snapshot = *spec.current_snapshot;
      if (spec.mounts) SB_TRYV(FindMounts(store, row));
      row.updated_at = NowMs();
      return {};
    };
    return store.EditSandbox(key, apply);
  };
  SB_CO_TRY(auto sandbox, co_await core_.Db(std::move(edit)));
  const Live* live = LiveOf(sandbox.current_session);
  if (live != nullptr && spec.env) live->session->SetEnv(*spec.env);
  if (live != nullptr && spec.idle_timeout_ms) live->session->SetIdleTimeout(*spec.idle_timeout_ms);
  co_return sandbox;
}

Task<SandboxView> ServiceImpl::GetSession(Scope scope, std::string session) {
  SandboxView view;
  SB_CO_TRY(view.session, co_await FindSession(std::move(scope), std::move(session)));
  SB_CO_TRY(view.sandbox, co_await SandboxOf(view.session));
  co_return view;
}

Task<NetworkView> ServiceImpl::Network(Scope scope, std::string session) {
  SB_CO_TRY(auto row, co_await FindSession(std::move(scope), std::move(session)));
  NetworkView view{.policy = egress::DenyAll()};
  const Live* live = LiveOf(row.id);
  if (live == nullptr || live->session->live() == nullptr) co_return view;
  const egress::Egress& egress = live->session->live()->egress();
  view.policy = live->session->policy();
  view.denials = egress.denials();
  view.attempts = egress.attempts();
  const std::shared_ptr<Session> holder = live->session;
  auto dropped = co_await holder->live()->machine().DroppedPackets();
  // A machine that is ending has no count any more.
  if (dropped && *dropped > 0) view.denials.push_back(holder->DroppedPackets(*dropped));
  co_return view;
}

Task<store::Token> ServiceImpl::CheckToken(std::string presented) {
  co_return FindToken(tokens_, presented);
}

}  // namespace sandbar::sandbox
