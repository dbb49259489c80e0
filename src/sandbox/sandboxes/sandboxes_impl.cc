#include "sandbox/sandboxes/sandboxes_impl.h"

#include <algorithm>

#include "base/ids.h"

namespace sandbar::sandbox {
namespace {

store::ProjectUsage& EntryOf(std::vector<store::ProjectUsage>& all, const std::string& team,
                             const std::string& project) {
  auto it = std::ranges::find_if(all, [&](const auto& u) { return u.team == team && u.project == project; });
  if (it != all.end()) return *it;
  store::ProjectUsage& added = all.emplace_back();
  added.team = team;
  added.project = project;
  return added;
}

}  // namespace

Task<SandboxView> SandboxesImpl::Create(Scope scope, CreateSpec spec) {
  auto work = workers_.creator->Create(std::move(scope), std::move(spec));
  co_return co_await RunToEnd(&core_->tasks, std::move(work));
}

Task<SandboxView> SandboxesImpl::Get(Scope scope, std::string name, bool resume) {
  if (resume) co_return co_await workers_.resumer->Resume(std::move(scope), std::move(name), ResumeFrom::kEither);
  SandboxView view;
  SB_CO_TRY(view.sandbox, co_await workers_.records->FindSandbox(scope, name));
  SB_CO_TRY(view.session, co_await workers_.records->FindSession(std::move(scope), view.sandbox.current_session));
  co_return view;
}

Task<Page<store::Sandbox>> SandboxesImpl::List(Scope scope, ListQuery query) {
  return workers_.records->ListSandboxes(std::move(scope), std::move(query));
}

Task<store::Sandbox> SandboxesImpl::Update(Scope scope, std::string name, UpdateSpec spec) {
  return workers_.updater->Update(std::move(scope), std::move(name), std::move(spec));
}

Task<store::Sandbox> SandboxesImpl::Delete(Scope scope, std::string name, bool orphan_snapshots) {
  auto work = workers_.deleter->Delete(std::move(scope), std::move(name), orphan_snapshots);
  co_return co_await RunToEnd(&core_->tasks, std::move(work));
}

Task<SandboxView> SandboxesImpl::Fork(Scope scope, std::string name, ForkSpec spec) {
  auto work = workers_.forker->Fork(std::move(scope), std::move(name), std::move(spec));
  co_return co_await RunToEnd(&core_->tasks, std::move(work));
}

Task<SandboxView> SandboxesImpl::Pause(Scope scope, std::string name) {
  return workers_.live->Pause(std::move(scope), std::move(name));
}

Task<SandboxView> SandboxesImpl::Resume(Scope scope, std::string name, ResumeFrom from) {
  return workers_.resumer->Resume(std::move(scope), std::move(name), from);
}

Task<std::vector<store::Notice>> SandboxesImpl::Notices(Scope scope, std::string name) {
  return workers_.records->ListNotices(std::move(scope), std::move(name));
}

Task<std::vector<store::ProjectUsage>> SandboxesImpl::Usage(Scope scope) {
  SB_CO_TRY(auto report, co_await core_->directory->Usage());
  const auto running = workers_.active->Running();
  for (const auto& session : running) {
    if (session->phase() != Session::Phase::kRunning) continue;
    auto used = co_await session->connected()->machine().GetUsage();
    const store::Session& row = session->row();
    store::ProjectUsage& entry = EntryOf(report, row.team, row.project);
    if (used) entry.cpu_ms += used->cpu_ns / 1000000;
    const int64_t age = std::max<int64_t>(NowMs() - row.started_at.value_or(NowMs()), 0);
    entry.memory_mb_ms += static_cast<uint64_t>(row.memory_mb) * static_cast<uint64_t>(age);
    entry.ingress += row.carried_ingress;
    entry.egress += row.carried_egress;
  }
  Records::KeepVisible(scope, report);
  co_return report;
}

}  // namespace sandbar::sandbox
