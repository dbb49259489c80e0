#include "sandbox/records.h"

#include "sandbox/validate.h"

namespace sandbar::sandbox {
namespace {

// The scope may act on rows of this team and project.
bool InScope(const Scope& scope, const std::string& team, const std::string& project) {
  return (scope.any_team || scope.team == team) && (scope.any_project || scope.project == project);
}

// Unknown and foreign ids answer alike.
std::unexpected<Error> NoSession() {
  return Fail(Code::kNotFound, "session not found");
}

template <class T>
Page<T> ToPage(store::Listing<T> listing) {
  return {std::move(listing.items), std::move(listing.next)};
}

}  // namespace

Task<store::Sandbox> Records::FindSandbox(Scope scope, std::string name) {
  if (scope.project.empty() || scope.team.empty()) co_return Fail(Code::kBadRequest, "projectId: is required");
  auto key = store::SandboxKey{scope.team, scope.project, name};
  SB_CO_TRY(auto found, co_await core_->directory->FindSandbox(std::move(key)));
  if (!found) co_return Fail(Code::kNotFound, "sandbox not found: " + name.substr(0, 128));
  co_return *std::move(found);
}

Task<store::Session> Records::FindSession(Scope scope, std::string id) {
  if (active_->Find(id)) {
    const auto session = ActiveIfAny(scope, id);
    if (!session) co_return NoSession();
    co_return session->row();
  }
  auto find = [id](store::Journal& journal) { return journal.FindSession(id); };
  SB_CO_TRY(auto found, co_await core_->Journal(std::move(find)));
  if (!found || !InScope(scope, found->team, found->project)) co_return NoSession();
  co_return *std::move(found);
}

Task<store::Snapshot> Records::FindSnapshot(Scope scope, std::string id) {
  SB_CO_TRY(auto found, co_await FindSnapshotIfAny(std::move(scope), std::move(id)));
  if (!found) co_return Fail(Code::kNotFound, "snapshot not found");
  co_return *std::move(found);
}

Task<std::optional<store::Snapshot>> Records::FindSnapshotIfAny(Scope scope, std::string id) {
  SB_CO_TRY(auto found, co_await core_->directory->FindSnapshot(std::move(id)));
  if (found && !InScope(scope, found->team, found->project)) found.reset();
  co_return found;
}

std::shared_ptr<Session> Records::ActiveIfAny(const Scope& scope, const std::string& id) const {
  auto session = active_->Find(id);
  if (!session || !InScope(scope, session->row().team, session->row().project)) return nullptr;
  return session;
}

Task<std::shared_ptr<Session>> Records::FindActive(Scope scope, std::string id) {
  SB_CO_TRY(auto row, co_await FindSession(std::move(scope), id));
  auto session = active_->Find(id);
  if (!session) co_return Fail(Code::kStopped, "the sandbox has stopped");
  if (session->phase() == Session::Phase::kStarting) {
    SB_CO_TRYV(co_await session->started()->Wait());
  }
  SB_CO_TRYV(session->Usable());
  co_return session;
}

Task<store::Sandbox> Records::SandboxOf(store::Session session) {
  auto key = store::KeyOf(session);
  SB_CO_TRY(auto found, co_await core_->directory->FindSandbox(std::move(key)));
  if (!found) co_return NoSession();
  co_return *std::move(found);
}

Task<Page<store::Sandbox>> Records::ListSandboxes(Scope scope, ListQuery query) {
  SB_CO_TRY(auto filter, CheckList(scope, query, false));
  SB_CO_TRY(auto listing, co_await core_->directory->ListSandboxes(std::move(filter)));
  co_return ToPage(std::move(listing));
}

Task<Page<store::Session>> Records::ListSessions(Scope scope, ListQuery query) {
  SB_CO_TRY(auto filter, CheckList(scope, query, true));
  auto list = [filter = std::move(filter)](store::Journal& journal) { return journal.ListSessions(filter); };
  SB_CO_TRY(auto listing, co_await core_->Journal(std::move(list)));
  co_return ToPage(std::move(listing));
}

Task<Page<store::Snapshot>> Records::ListSnapshots(Scope scope, ListQuery query) {
  SB_CO_TRY(auto filter, CheckList(scope, query, true));
  SB_CO_TRY(auto listing, co_await core_->directory->ListSnapshots(std::move(filter)));
  co_return ToPage(std::move(listing));
}

Task<std::vector<store::Notice>> Records::ListNotices(Scope scope, std::string sandbox) {
  auto list = [key = store::SandboxKey{scope.team, scope.project, std::move(sandbox)}](store::Journal& journal) {
    return journal.Notices(key);
  };
  co_return co_await core_->Journal(std::move(list));
}

void Records::KeepVisible(const Scope& scope, std::vector<store::ProjectUsage>& report) {
  std::erase_if(report, [&](const auto& u) { return !InScope(scope, u.team, u.project); });
}

bool Records::Includes(const Scope& scope, const store::Key& key) {
  return InScope(scope, key.team, key.project);
}

}  // namespace sandbar::sandbox
