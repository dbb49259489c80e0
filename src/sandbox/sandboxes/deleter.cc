#include "sandbox/sandboxes/deleter.h"

#include <filesystem>

#include "base/ids.h"
#include "base/log.h"
#include "sandbox/sandboxes/pending_deletion.h"
#include "sandbox/sandboxes/sandboxes.h"

namespace sandbar::sandbox {
namespace {

constexpr int kDisposablePage = 200;

}  // namespace

Task<Deleter::Found> Deleter::FindForDeletion(Scope scope, std::string name, bool orphan_snapshots) {
  if (scope.project.empty() || scope.team.empty()) co_return Fail(Code::kBadRequest, "projectId: is required");
  auto find = [key = store::SandboxKey{scope.team, scope.project, name},
               orphan_snapshots](store::Store& store) -> Result<Found> {
    SB_TRY(auto sandbox, store.FindSandbox(key));
    if (!sandbox) return Fail(Code::kNotFound, "sandbox not found: " + key.name.substr(0, 128));
    const bool ended = sandbox->status == store::Status::kStopped || sandbox->status == store::Status::kFailed ||
                       sandbox->status == store::Status::kAborted;
    if (!ended) SB_TRYV(AddPendingDeletion(store, {key, orphan_snapshots, sandbox->created_at}));
    return Found{*std::move(sandbox), !ended};
  };
  co_return co_await core_->Combined(std::move(find));
}

Task<store::Sandbox> Deleter::StopForDeletion(store::Sandbox sandbox, bool orphan_snapshots, Removed removed) {
  Keep keep = KeepNothing();
  keep.then = [key = store::KeyOf(sandbox), orphan_snapshots, removed](store::Store& store) -> Result<> {
    SB_TRY(*removed, RemoveSandbox(store, key, orphan_snapshots));
    return {};
  };
  auto stop = stopper_->Request(sandbox.current_session, StopCause::kRequested, "deleted", std::move(keep));
  if (!stop) co_return sandbox;
  auto stopped = co_await stop->Wait();
  if (!stopped && !core_->closing) {
    // The caller hears that it failed, so the next start must not do it behind their back.
    auto cancel = [key = store::KeyOf(sandbox)](store::Journal& journal) { return CancelDeletion(journal, key); };
    SB_CO_TRYV(co_await core_->Journal(std::move(cancel)));
  }
  co_return stopped;
}

Task<store::Sandbox> Deleter::Delete(Scope scope, std::string name, bool orphan_snapshots) {
  SB_CO_TRY(auto found, co_await FindForDeletion(std::move(scope), std::move(name), orphan_snapshots));
  store::Sandbox sandbox = std::move(found.sandbox);
  auto key = store::KeyOf(sandbox);
  auto removed = std::make_shared<std::optional<std::vector<std::string>>>();
  if (active_->Has(sandbox.current_session)) {
    // Its end is on record, and being cleared away.
    auto note = [pending = PendingDeletion{key, orphan_snapshots, sandbox.created_at}](store::Journal& journal) {
      return AddPendingDeletion(journal, pending);
    };
    if (!found.pending) SB_CO_TRYV(co_await core_->Journal(std::move(note)));
    SB_CO_TRY(sandbox, co_await StopForDeletion(std::move(sandbox), orphan_snapshots, removed));
  }
  if (*removed) {
    auto sessions = *std::move(*removed);
    SB_CO_TRYV(co_await RemoveLogs(std::move(key.name), std::move(sessions)));
    co_return sandbox;
  }
  auto meant = [born = sandbox.created_at](const store::Sandbox& now) { return now.created_at == born; };
  SB_CO_TRYV(co_await RemoveRecord(std::move(key), orphan_snapshots, std::move(meant)));
  co_return sandbox;
}

Task<> Deleter::RemoveRecord(store::SandboxKey key, bool orphan_snapshots,
                             std::function<bool(const store::Sandbox&)> meant) {
  auto remove = [key, orphan_snapshots, meant](store::Store& store) -> Result<std::vector<std::string>> {
    SB_TRY(auto now, store.FindSandbox(key));
    if (!now) SB_TRYV(CancelDeletion(store, key));
    if (!now || !meant(*now)) return std::vector<std::string>{};
    return RemoveSandbox(store, key, orphan_snapshots);
  };
  SB_CO_TRY(auto sessions, co_await core_->Combined(std::move(remove)));
  co_return co_await RemoveLogs(std::move(key.name), std::move(sessions));
}

Task<> Deleter::RemoveLogs(std::string sandbox, std::vector<std::string> sessions) {
  std::vector<std::string> dirs;
  for (const auto& id : sessions) dirs.push_back(core_->LogDir(id));
  auto erase = [dirs = std::move(dirs)] {
    std::error_code ec;
    for (const auto& dir : dirs) std::filesystem::remove_all(dir, ec);
    return ec;
  };
  auto ec = co_await core_->Files(std::move(erase));
  if (ec) log::Warn("logs of {}: {}", sandbox, ec.message());
  for (const auto& id : sessions) core_->logs.Forget(id);
  co_return co_await traces_->Clear();
}

Task<> Deleter::RemoveDisposable() {
  const int64_t now = NowMs();
  store::ListFilter filter;
  filter.limit = kDisposablePage;
  filter.tag = {kDisposableTag, "1"};
  filter.sort_by = store::SortBy::kStatusUpdatedAt;
  filter.ascending = true;
  std::vector<store::Sandbox> due;
  do {
    SB_CO_TRY(auto page, co_await core_->directory->ListSandboxes(filter));
    for (store::Sandbox& s : page.items) {
      const bool stopped = s.status == store::Status::kStopped && s.current_snapshot.empty();
      if (stopped && s.status_updated_at + s.timeout_ms <= now) due.push_back(std::move(s));
    }
    filter.cursor = std::move(page.next);
  } while (!filter.cursor.empty());
  for (const store::Sandbox& s : due) {
    auto key = store::KeyOf(s);
    auto meant = [at = s.status_updated_at](const store::Sandbox& now) {
      return now.status == store::Status::kStopped && now.status_updated_at == at;
    };
    SB_CO_TRYV(co_await RemoveRecord(std::move(key), false, std::move(meant)));
  }
  co_return Result<>{};
}

// Sandboxes that nobody named or used again. Their snapshots expire by themselves at the same time.
Task<> Deleter::RemoveUnclaimed() {
  SB_CO_TRY(auto due, co_await core_->directory->SandboxesToCollect(NowMs()));
  for (const store::Sandbox& s : due) {
    if (active_->Has(s.current_session)) continue;
    auto key = store::KeyOf(s);
    auto removed = std::make_shared<bool>(false);
    auto meant = [s, removed](const store::Sandbox& now) {
      *removed = now.collect_after_ms > 0 && now.status == s.status && now.status_updated_at == s.status_updated_at;
      return *removed;
    };
    SB_CO_TRYV(co_await RemoveRecord(std::move(key), false, std::move(meant)));
    if (*removed) log::Info("sandbox {}: removed, because nobody named it or used it again", s.name);
  }
  co_return Result<>{};
}

Task<> Deleter::FinishPending() {
  co_await asio::this_coro::throw_if_cancelled(false);
  auto list = [](store::Journal& journal) { return PendingDeletions(journal); };
  SB_CO_TRY(auto all, co_await core_->Journal(std::move(list)));
  for (const PendingDeletion& pending : all) {
    // Meanwhile there may be another sandbox of that name.
    auto check = [pending](store::Store& store) -> Result<bool> {
      SB_TRY(auto now, store.FindSandbox(pending.key));
      if (now && pending.Means(*now)) return true;
      SB_TRYV(CancelDeletion(store, pending.key));
      return false;
    };
    SB_CO_TRY(const bool meant, co_await core_->Combined(std::move(check)));
    if (!meant) continue;
    Scope scope;
    scope.team = pending.key.team;
    scope.project = pending.key.project;
    auto deleted = co_await Delete(std::move(scope), pending.key.name, pending.with_snapshots);
    if (core_->closing) break;
    if (deleted) {
      log::Info("sandbox {}: deleted, as a server that ended had begun to", pending.key.name);
      continue;
    }
    if (deleted.error().code != Code::kNotFound) {
      log::Warn("sandbox {} is to be deleted and is not: {}", pending.key.name, deleted.error().message);
      continue;
    }
    auto cancel = [key = pending.key](store::Journal& journal) { return CancelDeletion(journal, key); };
    SB_CO_TRYV(co_await core_->Journal(std::move(cancel)));
  }
  co_return Result<>{};
}

}  // namespace sandbar::sandbox
