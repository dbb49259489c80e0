// Machines that go on with their memory: live forks, pause and resume.
#include <fmt/format.h>

#include "base/ids.h"
#include "base/log.h"
#include "sandbox/service_impl.h"
#include "sandbox/snapshots/retention.h"

namespace sandbar::sandbox {
namespace {

// Written before a live snapshot is begun, with the time: whoever comes after a crash removes what it left. A job of
// the spawner may still publish it then, so it is looked for until it cannot come any more.
constexpr std::string_view kNote = "live/";
constexpr int64_t kNoteMs = 15LL * 60 * 1000;

}  // namespace

Result<> ServiceImpl::CheckLive(const Session& session) const {
  SB_TRYV(session.Usable());
  const engine::EngineInfo here = core_.ladder.Of(session.row().engine);
  if (!session.row().mounts.empty())
    return Fail(Code::kUnsupported, "a sandbox with drives cannot be kept with its memory; leave its mounts out");
  if (here.live) return {};
  std::string can;
  for (const engine::EngineInfo& e : core_.ladder.engines()) {
    if (e.live) can += (can.empty() ? "" : ", ") + e.name + (e.usable ? "" : " (not usable here: " + e.why_not + ")");
  }
  return Fail(Code::kUnsupported, "the engine " + here.name +
                                      " cannot keep the memory of a machine; engines that can: " +
                                      (can.empty() ? "none" : can) + " (create the sandbox with `isolation`)");
}

Task<ServiceImpl::Base> ServiceImpl::BaseOf(store::Session running, std::string head) {
  store::Snapshot like;
  like.image = running.image;
  like.image_layers = running.image_layers;
  like.user = running.user;
  like.home = running.home;
  like.cwd = running.cwd;
  like.runtime = running.runtime;
  like.uid = running.uid;
  like.gid = running.gid;
  like.image_env = running.image_env;
  like.format = FormatName(engine::RootfsFormat::kBlock);
  // What it falls back to when its machine is lost before it ever stopped: the same as the source would.
  Scope scope;
  scope.team = running.team;
  scope.project = running.project;
  auto usable = co_await UsableSnapshot(std::move(scope), std::move(head));
  if (usable) like.id = usable->id;
  co_return BaseOf(like);
}

Heritage ServiceImpl::HeritageOf(Scope scope, std::string session, std::string snapshot) {
  Heritage heritage;
  heritage.open_log = [this, scope = std::move(scope), session](std::string command) {
    return OpenLog(scope, session, std::move(command));
  };
  heritage.session = std::move(session);
  heritage.snapshot = std::move(snapshot);
  return heritage;
}

Task<SandboxView> ServiceImpl::ForkLive(Scope scope, store::Sandbox source, NewSandbox wanted) {
  const Live* live = LiveOf(source.current_session);
  if (live == nullptr)
    co_return Fail(Code::kStopped,
                   "sandbox \"" + source.name + "\" does not run: only a running one can be forked live");
  auto session = live->session;
  SB_CO_TRYV(CheckLive(*session));
  if (wanted.record.vcpus != session->row().vcpus || wanted.record.memory_mb != session->row().memory_mb)
    co_return Fail(Code::kBadRequest, "resources: a live fork has the size of its source");
  if (wanted.record.isolation.nesting != session->row().nesting)
    co_return Fail(Code::kBadRequest, "nesting: a live fork goes on as its source is");
  if (!wanted.record.mounts.empty())
    co_return Fail(Code::kUnsupported, "mounts: a live fork goes on as it is and cannot get drives");
  const auto used = Session::Use(session);
  SB_CO_TRY(wanted.base, co_await BaseOf(session->row(), source.current_snapshot));
  const std::string snapshot = NewId("live_");
  auto note = [snapshot](store::Store& store) {
    return store.SetNote(std::string(kNote) + snapshot, std::to_string(NowMs()));
  };
  SB_CO_TRYV(co_await core_.Db(std::move(note)));
  forking_.insert(snapshot);
  Result<SandboxView> forked = Fail(Code::kInternal, "");
  const std::vector<KeptContext> idle = session->IdleContexts();
  const auto link = session->live()->link();
  if (link) link->SetPaused(true);
  auto taken = co_await session->live()->machine().SnapshotLive(snapshot, true);
  if (link) link->SetPaused(false);
  if (taken) {
    wanted.heritage = HeritageOf(scope, session->row().id, snapshot);
    wanted.heritage->contexts = StillIdle(idle, session->IdleContexts());
    forked = co_await CreateFrom(std::move(scope), std::move(wanted));
    if (forked) forked->live = *taken;
  } else {
    forked = std::unexpected(taken.error());
  }
  forking_.erase(snapshot);
  // The fork has its own copy of all of it.
  if (!core_.closing) {
    auto dropped = co_await DropLiveSnapshot(snapshot);
    if (!dropped) log::Warn("{}: {}", snapshot, dropped.error().message);
  }
  co_return forked;
}

Task<SandboxView> ServiceImpl::Pause(Scope scope, std::string name) {
  SB_CO_TRY(auto sandbox, co_await FindSandbox(scope, std::move(name)));
  SB_CO_TRY(auto session, co_await FindLive(scope, sandbox.current_session));
  SB_CO_TRYV(CheckLive(*session));
  if (session->row().image_layers.empty())
    co_return Fail(Code::kUnsupported, "this session was started by an older server and cannot be kept");
  Keep keep;
  keep.memory = true;
  auto stop = RequestStop(session->row().id, StopCause::kRequested, "paused", keep);
  if (!stop) co_return Fail(Code::kStopped, "the sandbox has stopped");
  SandboxView view;
  SB_CO_TRY(view.sandbox, co_await stop->Wait());
  view.session = session->row();
  if (view.session.snapshot.empty())
    co_return Fail(Code::kUnavailable, "the machine was lost before its files could be kept");
  SB_CO_TRY(view.snapshot, co_await GetSnapshot(std::move(scope), view.session.snapshot));
  if (!view.snapshot->memory.empty()) co_return view;
  const std::string& why = session->memory_lost();
  co_return Fail(Code::kUnavailable, "the sandbox has stopped and its files are kept, but not its memory: " +
                                         (why.empty() ? "another stop came first" : why));
}

// What it goes on with besides its files.
Result<std::optional<Heritage>> ServiceImpl::MemoryOf(const Scope& scope, const store::Snapshot& snapshot,
                                                      ResumeFrom from) {
  if (from == ResumeFrom::kDisk) return std::nullopt;
  if (snapshot.memory.empty()) {
    if (from == ResumeFrom::kEither) return std::nullopt;
    return Fail(Code::kConflict, "snapshot " + snapshot.id + " has no memory: sandbox \"" + snapshot.sandbox +
                                     "\" can only be started from its files");
  }
  Heritage heritage = HeritageOf(scope, snapshot.session, snapshot.id);
  // Without the list its interpreters are lost, and nothing else.
  auto contexts = core_.vault.Open(snapshot.contexts, "memory/" + snapshot.id);
  auto list = contexts ? DecodeContexts(*contexts) : std::unexpected(contexts.error());
  if (!list) log::Warn("snapshot {}: {}", snapshot.id, list.error().message);
  if (list) heritage.contexts = *std::move(list);
  return heritage;
}

Task<SandboxView> ServiceImpl::ResumeFromDisk(store::Sandbox sandbox, std::string why) {
  log::Warn("sandbox {}: starts from its files: {}", sandbox.name, why);
  store::Notice notice;
  notice.at = NowMs();
  notice.team = sandbox.team;
  notice.project = sandbox.project;
  notice.sandbox = sandbox.name;
  notice.text = "it was started from its files, without the processes that ran: " + why;
  auto add = [notice = std::move(notice)](store::Store& store) { return store.AddNotice(notice); };
  SB_CO_TRYV(co_await core_.Db(std::move(add)));
  co_return co_await ResumeNow(std::move(sandbox), ResumeFrom::kDisk);
}

// Once it was used: a second machine that goes on from the same moment would be a fork that nobody asked for, and
// memory is large.
Task<> ServiceImpl::DropMemory(store::Snapshot snapshot) {
  auto forget = [id = snapshot.id](store::Store& store) { return ForgetMemory(store, id); };
  SB_CO_TRYV(co_await core_.Db(std::move(forget)));
  co_return co_await RemoveSpent(std::move(snapshot.id));
}

Task<> ServiceImpl::RemoveSpent(std::string snapshot) {
  SB_CO_TRYV(co_await core_.deps.engine->RemoveMemory(snapshot));
  auto done = [snapshot](store::Store& store) { return store.SetNote(std::string(kSpentMemory) + snapshot, ""); };
  co_return co_await core_.Db(std::move(done));
}

// What a server that died, or a supervisor that did not answer, left.
Task<> ServiceImpl::TidyMemory() {
  auto list = [](store::Store& store) -> Result<std::vector<std::string>> {
    SB_TRY(auto notes, store.Notes(std::string(kSpentMemory)));
    std::vector<std::string> spent;
    for (const auto& [name, unused] : notes) {
      std::string id = name.substr(kSpentMemory.size());
      SB_TRY(auto row, store.FindSnapshot(id));
      // The row was to be changed next, and was not: the memory is still what it says.
      if (row && !row->memory.empty()) {
        SB_TRYV(store.SetNote(name, ""));
      } else {
        spent.push_back(std::move(id));
      }
    }
    return spent;
  };
  SB_CO_TRY(auto spent, co_await core_.Db(std::move(list)));
  for (std::string& snapshot : spent) SB_CO_TRYV(co_await RemoveSpent(std::move(snapshot)));
  co_return Result<>{};
}

Task<SandboxView> ServiceImpl::Resume(Scope scope, std::string name, ResumeFrom from) {
  SandboxView view;
  // The end of a session changes the record, and what it kept is where this goes on: so the record counts only when it
  // was read after that end.
  std::string ended;
  for (;;) {
    SB_CO_TRY(view.sandbox, co_await FindSandbox(scope, name));
    if (view.sandbox.current_session == ended) break;
    const Live* live = LiveOf(view.sandbox.current_session);
    auto session = live != nullptr ? live->session : nullptr;
    auto stop = live != nullptr ? live->stop : nullptr;
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
  if (auto it = resuming_.find(key); it != resuming_.end()) {
    auto outcome = it->second;
    SB_CO_TRY(view, co_await outcome->Wait());
    view.resumed = false;
    co_return view;
  }
  auto outcome = std::make_shared<Outcome<SandboxView>>(core_.ex);
  resuming_[key] = outcome;
  auto work = ResumeNow(std::move(view.sandbox), from);
  auto resumed = co_await RunToEnd(&tasks_, std::move(work));
  resuming_.erase(key);
  outcome->Set(resumed);
  co_return resumed;
}

Task<> ServiceImpl::DropLiveSnapshot(std::string snapshot) {
  SB_CO_TRYV(co_await core_.deps.engine->RemoveSnapshot(snapshot));
  auto forget = [snapshot](store::Store& store) { return store.SetNote(std::string(kNote) + snapshot, ""); };
  co_return co_await core_.Db(std::move(forget));
}

Task<> ServiceImpl::TidyLiveSnapshots() {
  auto list = [](store::Store& store) { return store.Notes(std::string(kNote)); };
  SB_CO_TRY(auto notes, co_await core_.Db(std::move(list)));
  for (const auto& [name, at] : notes) {
    const std::string snapshot = name.substr(kNote.size());
    if (forking_.contains(snapshot)) continue;
    SB_CO_TRYV(co_await core_.deps.engine->RemoveSnapshot(snapshot));
    if (NowMs() - std::strtoll(at.c_str(), nullptr, 10) < kNoteMs) continue;
    SB_CO_TRYV(co_await DropLiveSnapshot(snapshot));
  }
  co_return Result<>{};
}

}  // namespace sandbar::sandbox
