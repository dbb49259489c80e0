#include "sandbox/sessions/session.h"

#include <algorithm>

#include "async/cancelled.h"
#include "base/ids.h"
#include "base/log.h"
#include "sandbox/engine_selector.h"
#include "sandbox/sandboxes/boot_source.h"
#include "sandbox/sessions/pool.h"
#include "sandbox/snapshots/retention.h"

namespace sandbar::sandbox {
namespace {

using std::chrono::milliseconds;

// The supervisor's deadline lies this far behind ours: it is for the case that we are dead or stuck.
constexpr milliseconds kDeadlineSlack{2000};
constexpr milliseconds kStopMargin{30000};
constexpr milliseconds kShortMargin{5000};  // where no files are kept
// Of the agent, where no files are kept. A kernel of its own may keep it from answering for longer.
constexpr milliseconds kShortSilence{1000};
constexpr milliseconds kMemorySaving{600'000};
constexpr milliseconds kDrainTime{2000};

}  // namespace

Session::Session(Core* core, store::Session row, std::map<std::string, std::string> env, StopRequest stop)
    : core_(core),
      row_(std::move(row)),
      env_(std::move(env)),
      stop_(std::move(stop)),
      started_(std::make_shared<SharedResult<bool>>(core->ex)),
      earlier_ingress_(row_.carried_ingress),
      earlier_egress_(row_.carried_egress),
      command_ended_(core->ex),
      deadline_moved_(core->ex),
      policy_changed_(core->ex),
      tasks_(core->ex) {}

Result<> Session::Usable() const {
  switch (phase_) {
    case Phase::kRunning:
      return {};
    case Phase::kStarting:
      return Fail(Code::kUnavailable, "the sandbox is starting");
    case Phase::kStopping:
      if (row_.status == store::Status::kSnapshotting)
        return Fail(Code::kSnapshotting, "a snapshot of the sandbox is being made");
      return Fail(Code::kStopping, "the sandbox is stopping");
    case Phase::kEnded:
      break;
  }
  return Fail(Code::kStopped, "the sandbox has stopped");
}

Result<std::shared_ptr<engine::GuestLink>> Session::Link() const {
  SB_TRYV(Usable());
  auto link = connected_->link();
  if (!link) return Fail(Code::kUnavailable, "the sandbox is reconnecting; try again");
  return link;
}

bool Session::CountBytes() {
  const egress::EgressCounters now = connected_->egress().counters();
  const uint64_t in = earlier_ingress_ + now.ingress_bytes + previews_->written;
  const uint64_t out = earlier_egress_ + now.egress_bytes + previews_->read;
  const bool changed = in != row_.carried_ingress || out != row_.carried_egress;
  row_.carried_ingress = in;
  row_.carried_egress = out;
  return changed;
}

Task<store::Sandbox> Session::Save() {
  store::SandboxEdit nothing;
  co_return co_await SaveWith(std::move(nothing));
}

Task<store::Sandbox> Session::SaveWith(store::SandboxEdit edit, std::function<Result<>(store::Store&)> then) {
  row_.updated_at = NowMs();
  auto write = [row = row_, edit = std::move(edit),
                then = std::move(then)](store::Store& store) -> Result<store::Sandbox> {
    auto both = [&row, &edit](store::Sandbox& s) -> Result<> {
      if (edit) SB_TRYV(edit(s));
      if (s.current_session == row.id) {
        if (s.status != row.status) s.status_updated_at = row.updated_at;
        s.status = row.status;
        s.engine = row.engine;
        s.isolation_class = row.isolation_class;
      }
      s.updated_at = row.updated_at;
      return {};
    };
    SB_TRY(auto sandbox, store.SaveSession(row, both));
    if (then) SB_TRYV(then(store));
    return sandbox;
  };
  co_return co_await core_->Db(std::move(write));
}

Task<> Session::Run(std::unique_ptr<ConnectedMachine> live, std::optional<SourceSpec> source,
                    std::optional<RestoredMemory> restored) {
  connected_ = std::move(live);
  connected_->Identify(row_);
  if (restored) {
    SB_CO_TRYV(co_await Inherit(*std::move(restored)));
  } else {
    connected_->Listen(this);
  }
  // A pooled machine's row was written as running when it was claimed.
  const bool saved = row_.status == store::Status::kRunning;
  if (!saved) {
    row_.status = store::Status::kRunning;
    row_.started_at = NowMs();
  }
  SB_CO_TRYV(co_await ArmDeadline());
  if (source) {
    SB_CO_TRYV(co_await FetchSource(*std::move(source)));
  }
  policy_ = RecordedPolicy();
  SB_CO_TRYV(co_await TrustCa(policy_));
  if (!saved) {
    // A resumed session becomes the sandbox's current one at this moment and not before.
    store::SandboxEdit current = [row = row_](store::Sandbox& s) -> Result<> {
      // It may demand more since this one was begun.
      if (!Meets(s.isolation, row.engine, row.isolation_class, row.nesting))
        return Fail(Code::kConflict, "the sandbox demands a stronger isolation since; start it again");
      s.current_session = row.id;
      return {};
    };
    SB_CO_TRYV(co_await SaveWith(std::move(current)));
  }
  // Only a policy that is on record may open the network.
  connected_->egress().SetPolicy(policy_);
  SB_CO_TRYV(co_await TellInherited());
  phase_ = Phase::kRunning;
  tasks_.Spawn(Clock());
  started_->Set(true);
  co_return Result<>{};
}

Task<> Session::Reattach(std::vector<store::Command> unfinished, bool present, bool alive) {
  SB_CO_TRYV(co_await RecoverCommands(unfinished));
  if (!present) co_return Fail(Code::kNotFound, "it was gone when the server started");
  policy_ = RecordedPolicy();
  SB_CO_TRY(connected_, co_await ConnectedMachine::Attach(core_, row_, policy_));
  if (!alive) co_return Fail(Code::kClosed, "it ended while the server was down");
  // It may stand still already, and then its agent does not answer.
  if (row_.status == store::Status::kStopping && !row_.snapshot_memory.empty()) {
    phase_ = Phase::kStopping;
    started_->Set(true);
    co_return Result<>{};
  }
  connected_->Listen(this);
  SB_CO_TRYV(co_await connected_->Connect());
  // Commands that the agent has never heard of, or has forgotten, will not report.
  const auto& known = connected_->link()->known_commands();
  for (const auto& command : unfinished) {
    const bool there = std::any_of(known.begin(), known.end(), [&](const auto& k) { return k.id == command.id; });
    auto run = Find(command.id);
    if (there || !run || run->ending) continue;
    run->ending = true;
    protocol::Exit lost;
    lost.id = command.id;
    lost.code = 137;
    lost.final_offset = run->log->received();
    run->killed = true;
    tasks_.Spawn(FinishCommand(run, std::move(lost)));
  }
  KillOldDrivers();
  phase_ = row_.status == store::Status::kRunning ? Phase::kRunning : Phase::kStopping;
  if (phase_ == Phase::kRunning) {
    SB_CO_TRYV(co_await ArmDeadline());
    // What was killed for memory before is known already.
    auto usage = co_await connected_->machine().GetUsage();
    if (usage) oom_kills_ = usage->oom_kills;
    SB_CO_TRYV(co_await TellInherited());
    tasks_.Spawn(Clock());
    tasks_.Spawn(TrustCaAgain());
  }
  started_->Set(true);
  co_return Result<>{};
}

// The supervisor's clock; ours is Clock().
Task<> Session::ArmDeadline() {
  const int64_t left = std::max<int64_t>(Deadline() - NowMs(), 0);
  const milliseconds deadline = milliseconds(left) + kDeadlineSlack;
  co_return co_await connected_->machine().SetDeadline(deadline);
}

void Session::SetIdleTimeout(std::optional<int64_t> ms) {
  idle_timeout_ms_ = ms;
  last_used_ = std::chrono::steady_clock::now();
  deadline_moved_.Notify();
}

std::shared_ptr<void> Session::Use(std::shared_ptr<Session> session) {
  ++session->users_;
  Session* raw = session.get();
  auto done = [session = std::move(session)](void*) {
    --session->users_;
    session->last_used_ = std::chrono::steady_clock::now();
  };
  return {raw, std::move(done)};
}

std::optional<int64_t> Session::IdleLeft() const {
  if (!idle_timeout_ms_) return std::nullopt;
  if (users_ > 0 || !commands_.empty()) return idle_timeout_ms_;
  const auto since = std::chrono::steady_clock::now() - last_used_;
  return *idle_timeout_ms_ - std::chrono::duration_cast<milliseconds>(since).count();
}

Task<> Session::Clock() {
  co_await asio::this_coro::throw_if_cancelled(false);
  last_used_ = std::chrono::steady_clock::now();
  while (phase_ == Phase::kRunning) {
    int64_t left = Deadline() - NowMs();
    const auto idle_left = IdleLeft();
    if (left <= 0 || (idle_left && *idle_left <= 0)) {
      stop_(StopCause::kTimeout, left <= 0 ? "timeout" : "idle timeout");
      co_return Result<>{};
    }
    left = std::min(left, idle_left.value_or(left));
    // In pieces, because the wall clock may be set.
    const milliseconds piece(std::min<int64_t>(left, 60000));
    auto moved = deadline_moved_.Wait();
    auto r = co_await WithTimeout(std::move(moved), piece);
    if (!r && r.error().code == Code::kCancelled) break;
    auto cancelled = co_await CheckCancelled();
    if (!cancelled) break;
    if (phase_ == Phase::kRunning && CountBytes()) co_await Save();
  }
  co_return Result<>{};
}

Task<bool> Session::WantsSnapshot(Keep keep) {
  if (row_.image_layers.empty() || keep.what == Keep::What::kNothing) co_return false;
  if (keep.what == Keep::What::kSnapshot || keep.memory) co_return true;
  auto find = [key = store::KeyOf(row_)](store::Store& store) { return store.FindSandbox(key); };
  SB_CO_TRY(auto sandbox, co_await core_->Db(std::move(find)));
  co_return sandbox && sandbox->persistent;
}

Task<> Session::BeginStop(StopCause cause, std::string why, Keep keep) {
  phase_ = Phase::kStopping;
  deadline_moved_.Notify();
  // A stop that is taken up again after a crash knows already what it makes.
  if (row_.status != store::Status::kStopping && row_.status != store::Status::kSnapshotting) {
    const bool manual = keep.what == Keep::What::kSnapshot;
    row_.status = manual ? store::Status::kSnapshotting : store::Status::kStopping;
    auto wanted = co_await WantsSnapshot(keep);
    // When in doubt the files are kept.
    if (!wanted || *wanted) {
      row_.snapshot = NewId("snap_");
      row_.snapshot_manual = manual && !keep.on_the_way;
      row_.snapshot_memory = WantsMemory(cause, keep);
      row_.snapshot_expiration_ms = keep.expiration_ms;
    }
  }
  if (!row_.requested_stop_at) row_.requested_stop_at = NowMs();
  row_.stop_reason = std::move(why);
  // From the mark for deletion a start goes on as well. But what takes its time has to be seen by all.
  const bool brief = keep.what == Keep::What::kNothing && commands_.empty() && contexts_.empty() && !HoldsDrive();
  if (!brief) {
    auto saved = co_await Save();
    if (!saved) log::Error("session {}: {}", row_.id, saved.error().message);
  }
  const milliseconds saving = row_.snapshot_memory.empty() ? milliseconds(0) : kMemorySaving;
  if (connected_ && cause != StopCause::kLost && Deadline() - NowMs() < (kStopMargin + saving).count()) {
    // The supervisor must not cut the grace short.
    const milliseconds enough = core_->config.stop_grace + kStopMargin + saving;
    auto r = co_await connected_->machine().SetDeadline(enough);
    if (!r) log::Warn("session {}: deadline: {}", row_.id, r.error().message);
  }
  co_return Result<>{};
}

Task<> Session::Drain(bool graceful) {
  // What goes on later is not asked to end.
  graceful = graceful && row_.snapshot_memory.empty();
  // Copies: the table changes while we wait.
  auto running = commands_;
  for (auto& [id, run] : running) run->log->ReleasePins();
  auto link = connected_ ? connected_->link() : nullptr;
  if (graceful && link) {
    // Files that are kept have to reach the disk, which takes time. Quiesce gives up on an agent that is silent.
    const bool leaves_files = !row_.snapshot.empty() || HoldsDrive();
    const milliseconds enough = core_->config.stop_grace + (leaves_files ? kStopMargin : kShortMargin);
    auto quiesce = link->Quiesce(core_->config.stop_grace,
                                 leaves_files || connected_->has_own_kernel() ? milliseconds(0) : kShortSilence);
    auto quiesced = co_await WithTimeout(std::move(quiesce), enough);
    if (!quiesced) log::Warn("session {}: quiesce: {}", row_.id, quiesced.error().message);
    // An agent that is silent will not report the exits of its commands either.
    if (!quiesced && quiesced.error().code == Code::kTimeout) graceful = false;
  }
  // Exits are on their way; each needs its row. An agent that keeps them back does not hold us up.
  const int64_t until = NowMs() + kDrainTime.count();
  while (!commands_.empty() && NowMs() < until) {
    const bool recording = std::any_of(commands_.begin(), commands_.end(), [](auto& c) { return c.second->ending; });
    const bool expected = graceful && connected_ && connected_->link();
    if (!recording && !expected) break;
    const milliseconds left(std::max<int64_t>(until - NowMs(), 1));
    auto ended = command_ended_.Wait();
    auto r = co_await WithTimeout(std::move(ended), left);
    if (!r && r.error().code == Code::kCancelled) co_return std::unexpected(std::move(r).error());
  }
  co_return Result<>{};
}

Task<bool> Session::EndMachine(engine::Usage* usage) {
  if (!connected_) {
    // It was gone when we came, but perhaps an earlier daemon had seen its end and could not write it down any more.
    SB_CO_TRY(auto snapshots, co_await core_->deps.engine->ListSnapshots());
    co_return std::ranges::find(snapshots, row_.snapshot) != snapshots.end();
  }
  CountBytes();
  if (!row_.snapshot_memory.empty()) {
    SB_CO_TRYV(co_await KeepMemory());
    // Then it is a stop like any other: what was written has to reach the disk.
    if (row_.snapshot_memory.empty()) SB_CO_TRYV(co_await Drain(true));
  }
  const bool memory = !row_.snapshot_memory.empty();
  std::string keep_as = memory ? "" : row_.snapshot;
  auto destroyed = co_await connected_->Destroy(std::move(keep_as));
  if (destroyed) *usage = *destroyed;
  if (destroyed) co_return true;
  // A shutdown came between: the row stays "stopping" and the next start finishes the job.
  if (core_->closing) co_return std::unexpected(std::move(destroyed).error());
  if (memory && destroyed.error().code == Code::kNotFound) co_return true;
  // As long as the machine may write to a drive, nobody else can have it.
  if (row_.snapshot.empty() && !HoldsDrive()) {
    // The row says "stopped", so the next start finds the machine and destroys it.
    log::Error("machine {}: not destroyed: {}", row_.machine_id, destroyed.error().message);
    co_return false;
  }
  if (destroyed.error().code == Code::kNotFound) co_return false;
  co_return std::unexpected(std::move(destroyed).error());
}

Task<> Session::SetInherited(uint64_t bytes) {
  inherited_bytes_ = bytes;
  corrected_ = true;
  // A machine that still starts is told by Run or Reattach.
  if (connected_ && phase_ == Phase::kRunning) co_await TellInherited();
  co_return Result<>{};
}

Task<> Session::TellInherited() {
  // SetInherited may be called again while SetLimits is under way.
  while (std::exchange(corrected_, false)) {
    const engine::Limits limits = BootOf(*core_, row_.engine, row_.vcpus).limits;
    auto told = co_await connected_->machine().SetLimits(limits, inherited_bytes_);
    if (!told) log::Warn("disk limit of {}: {}", row_.id, told.error().message);
  }
  co_return Result<>{};
}

store::Snapshot Session::MakeSnapshot(const engine::Usage& usage) const {
  store::Snapshot s;
  s.id = row_.snapshot;
  s.team = row_.team;
  s.project = row_.project;
  s.sandbox = row_.sandbox;
  s.session = row_.id;
  s.parent = row_.source_snapshot;
  s.manual = row_.snapshot_manual;
  s.region = row_.region;
  s.size_bytes = inherited_bytes_ + usage.disk_bytes + memory_bytes_;
  s.memory = row_.snapshot_memory;
  s.contexts = kept_contexts_;
  s.created_at = s.updated_at = s.last_used_at = *row_.stopped_at;
  CopyImage(row_, s);
  s.snapshot_layers = row_.snapshot_layers;
  const engine::EngineInfo engine = core_->engines.Of(row_.engine);
  s.engine = row_.engine;
  s.format = FormatName(engine.format);
  if (!s.snapshot_layers.empty() && engine.copies_snapshots) s.snapshot_layers.erase(s.snapshot_layers.begin());
  s.snapshot_layers.insert(s.snapshot_layers.begin(), s.id);
  return s;
}

Task<store::Sandbox> Session::End(StopCause cause, Keep keep) {
  if (!kept_) {
    SB_CO_TRY(kept_, co_await EndMachine(&usage_));
  }
  SB_CO_TRYV(co_await SnapshotDrives());
  if (!*kept_ && !row_.snapshot.empty()) {
    log::Error("session {}: its machine is gone, and what it wrote with it", row_.id);
    row_.snapshot.clear();
    cause = StopCause::kLost;
  }
  co_await tasks_.Close();
  const bool oom = connected_ && connected_->out_of_memory();
  DropContexts(oom ? "oom" : "killed", oom ? OutOfMemory() + ": the sandbox has stopped" : "the sandbox has stopped");
  auto lost = co_await FinishLostCommands();
  if (!lost) log::Error("session {}: {}", row_.id, lost.error().message);
  phase_ = Phase::kEnded;
  row_.stopped_at = NowMs();
  row_.cpu_ms = usage_.cpu_ns / 1000000;
  row_.ingress = row_.carried_ingress;
  row_.egress = row_.carried_egress;
  row_.status = store::Status::kStopped;
  if (cause == StopCause::kLost) {
    row_.status = connected_ ? store::Status::kFailed : store::Status::kAborted;
    row_.aborted_at = row_.stopped_at;
  }
  const int64_t duration = std::max<int64_t>(*row_.stopped_at - row_.started_at.value_or(*row_.stopped_at), 0);
  auto add = [cpu = *row_.cpu_ms, in = *row_.ingress, out = *row_.egress, duration](store::Sandbox& s) -> Result<> {
    s.total_cpu_ms += cpu;
    s.total_ingress += in;
    s.total_egress += out;
    s.total_duration_ms += static_cast<uint64_t>(duration);
    return {};
  };
  if (row_.snapshot.empty()) co_return co_await SaveWith(std::move(add), std::move(keep.then));
  row_.updated_at = *row_.stopped_at;
  auto write = [row = row_, snapshot = MakeSnapshot(usage_), add](store::Store& store) mutable {
    return SaveWithSnapshot(store, row, std::move(snapshot), add);
  };
  co_return co_await core_->Db(std::move(write));
}

Task<> Session::Discard() {
  phase_ = Phase::kEnded;
  Result<> out;
  if (connected_) {
    auto destroyed = co_await connected_->Destroy();
    if (!destroyed) out = std::unexpected(std::move(destroyed).error());
  }
  co_await tasks_.Close();
  co_return out;
}

asio::awaitable<void> Session::Detach() {
  co_await tasks_.Close();
  DropContexts("killed", "the server is stopping");
  if (phase_ == Phase::kRunning && CountBytes()) co_await Save();
  if (connected_) co_await connected_->Close();
  for (auto& [id, run] : commands_) run->log->OnProgress({});
}

Task<> Session::ExtendTimeout(int64_t duration_ms) {
  SB_CO_TRYV(Usable());
  if (duration_ms < 1000) co_return Fail(Code::kBadRequest, "duration: at least 1000 ms");
  const int64_t limit = core_->config.max_timeout_ms;
  if (duration_ms > limit || row_.timeout_ms > limit - duration_ms) {
    co_return Fail(Code::kTimeoutInvalid,
                   fmt::format("the timeout would be {} ms longer than {} ms; this server's limit "
                               "is {} ms in all",
                               duration_ms, row_.timeout_ms, limit));
  }
  row_.timeout_ms += duration_ms;
  auto r = co_await ArmDeadline();
  if (r) {
    auto saved = co_await Save();
    if (!saved) r = std::unexpected(std::move(saved).error());
  }
  if (!r) row_.timeout_ms -= duration_ms;
  deadline_moved_.Notify();
  co_return r;
}

void Session::OnLost(const std::string& why) {
  if (source_) {
    source_->lost = why;
    source_->changed.Notify();
  }
  // Past the deadline it was the supervisor, whether our own clock was late or the daemon was away.
  if (NowMs() >= Deadline()) {
    stop_(StopCause::kTimeout, "timeout");
  } else {
    stop_(StopCause::kLost, "machine lost: " + why);
  }
}

void Session::OnConnected() {
  for (auto& [id, run] : commands_) Ack(*run, true);
  if (!connected_ || !connected_->link()) return;
  for (const auto& id : std::exchange(unacked_exits_, {})) connected_->link()->AckExit(id);
}

}  // namespace sandbar::sandbox
