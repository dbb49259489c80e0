#include "sandbox/sandboxes/resumer.h"

#include "base/ids.h"
#include "base/log.h"
#include "sandbox/drives/drive_records.h"
#include "sandbox/sandboxes/sealed_settings.h"
#include "sandbox/seals.h"
#include "sandbox/sessions/network.h"
#include "sandbox/snapshots/retention.h"

namespace sandbar::sandbox {

Task<SandboxView> Resumer::Start(store::Sandbox sandbox, ResumeFrom from) {
  if (sandbox.current_snapshot.empty()) {
    co_return Fail(Code::kSnapshotMissing,
                   "sandbox \"" + sandbox.name + "\" has stopped and has no snapshot to resume from");
  }
  Scope scope;
  scope.team = sandbox.team;
  scope.project = sandbox.project;
  SB_CO_TRY(auto snapshot, co_await sources_->FindSnapshot(scope, sandbox.current_snapshot));
  SB_CO_TRY(auto restored, memory_->MemoryFor(scope, snapshot, from));
  const bool memory = restored.has_value();
  SB_CO_TRY(auto place, active_->Reserve());
  SB_CO_TRY(store::Session row, launcher_->MakeSession(sandbox, SourceOf(snapshot)));
  SB_CO_TRY(auto policy, co_await PolicyToStartWith(core_, sandbox));
  if (policy) row.network = SealPolicy(core_->vault, policy->policy(), SealOwner(row));
  row.machine_id = NewLabel("m-", 16);
  auto insert = [sandbox, row](store::Store& store) mutable -> Result<store::Session> {
    SB_TRYV(AttachDrives(store, sandbox, row));
    SB_TRYV(MarkUsed(store, row.source_snapshot));
    SB_TRYV(Claim(store, store::KeyOf(sandbox)));
    SB_TRYV(store.SaveSession(row, nullptr));
    return row;
  };
  auto inserted = co_await core_->Combined(std::move(insert));
  place.reset();
  if (!inserted) co_return std::unexpected(std::move(inserted).error());
  auto env = OpenEnv(*core_, sandbox);
  auto session = stopper_->Add(*std::move(inserted), std::move(env));
  session->clock().SetIdleTimeout(sandbox.idle_timeout_ms);
  Launch launch;
  launch.restored = std::move(restored);
  auto launched = co_await launcher_->Start(session, sandbox, std::move(launch));
  if (launched) {
    launched->resumed = true;
    Result<> dropped;
    if (!snapshot.memory.empty()) dropped = co_await memory_->Drop(snapshot);
    if (!dropped) log::Warn("snapshot {}: {}", snapshot.id, dropped.error().message);
    co_return launched;
  }
  Error why = launched.error();
  co_await launcher_->Undo(session, why);
  if (!memory || core_->closing) co_return launched;
  // Memory that the operator's setting kept may be given up. Memory that a caller asked for is not.
  if (snapshot.memory == "kept" && from == ResumeFrom::kEither)
    co_return co_await StartFromDisk(std::move(sandbox), std::move(why.message));
  why.message += " (`from`: \"disk\", or sandbar resume --disk, starts it from its files)";
  co_return std::unexpected(std::move(why));
}

Task<SandboxView> Resumer::StartFromDisk(store::Sandbox sandbox, std::string why) {
  log::Warn("sandbox {}: starts from its files: {}", sandbox.name, why);
  store::Notice notice;
  notice.at = NowMs();
  notice.team = sandbox.team;
  notice.project = sandbox.project;
  notice.sandbox = sandbox.name;
  notice.text = "it was started from its files, without the processes that ran: " + why;
  auto add = [notice = std::move(notice)](store::Journal& journal) { return journal.AddNotice(notice); };
  SB_CO_TRYV(co_await core_->Journal(std::move(add)));
  co_return co_await Start(std::move(sandbox), ResumeFrom::kDisk);
}

Task<SandboxView> Resumer::Resume(Scope scope, std::string name, ResumeFrom from) {
  SandboxView view;
  // The end of a session changes the record, and what it kept is where this goes on: so the record counts only when it
  // was read after that end.
  std::string ended;
  for (;;) {
    SB_CO_TRY(view.sandbox, co_await records_->FindSandbox(scope, name));
    if (view.sandbox.current_session == ended) break;
    const ActiveSession* active = active_->Entry(view.sandbox.current_session);
    auto session = active != nullptr ? active->session : nullptr;
    auto stop = active != nullptr ? active->stop : nullptr;
    if (session && !stop) {
      SB_CO_TRYV(co_await session->started()->Wait());
      if (session->phase() == Session::Phase::kRunning) {
        const auto used = Session::Use(session);  // whoever asks for it is about to use it
        view.session = session->row();
        view.sandbox.status = view.session.status;
        co_return view;
      }
      if (session->phase() != Session::Phase::kEnded) continue;
    }
    // What is under way is waited for: the client does not poll.
    if (stop) co_await stop->Wait();
    ended = view.sandbox.current_session;
  }
  // Everyone who asks while it boots gets the same session.
  const std::string key = view.sandbox.team + "/" + view.sandbox.project + "/" + view.sandbox.name;
  if (auto it = starting_.find(key); it != starting_.end()) {
    auto shared = it->second;
    SB_CO_TRY(view, co_await shared->Wait());
    view.resumed = false;
    co_return view;
  }
  auto shared = std::make_shared<SharedResult<SandboxView>>(core_->ex);
  starting_[key] = shared;
  auto work = Start(std::move(view.sandbox), from);
  auto resumed = co_await RunToEnd(&core_->tasks, std::move(work));
  starting_.erase(key);
  shared->Set(resumed);
  co_return resumed;
}

Task<std::shared_ptr<Session>> Resumer::ResumeForUse(Scope scope, std::string name) {
  SB_CO_TRY(SandboxView view, co_await Resume(scope, std::move(name), ResumeFrom::kEither));
  co_return co_await records_->FindActive(std::move(scope), view.session.id);
}

}  // namespace sandbar::sandbox
