// The end of a session: the steps of a stop, what is kept of it, and the row that remains.
#include <algorithm>

#include "base/ids.h"
#include "base/log.h"
#include "sandbox/drives/drive_records.h"
#include "sandbox/owner.h"
#include "sandbox/sandboxes/boot_source.h"
#include "sandbox/sessions/session.h"
#include "sandbox/snapshots/retention.h"

namespace sandbar::sandbox {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kStopMargin{30000};
constexpr milliseconds kShortMargin{5000};  // where no files are kept
// Of the agent, where no files are kept. A kernel of its own may keep it from answering for longer.
constexpr milliseconds kShortSilence{1000};
constexpr milliseconds kMemorySaving{600'000};
constexpr milliseconds kDrainTime{2000};

}  // namespace

Task<bool> Session::WantsSnapshot(Keep keep) {
  if (state_.row.image_layers.empty() || keep.what == Keep::What::kNothing) co_return false;
  if (keep.what == Keep::What::kSnapshot || keep.memory) co_return true;
  auto key = store::KeyOf(state_.row);
  SB_CO_TRY(auto sandbox, co_await state_.core->directory->FindSandbox(std::move(key)));
  co_return sandbox && sandbox->persistent;
}

Task<> Session::BeginStop(StopCause cause, std::string why, Keep keep) {
  state_.phase = Phase::kStopping;
  clock_.Notify();
  // A stop that is taken up again after a crash knows already what it makes.
  if (state_.row.status != store::Status::kStopping && state_.row.status != store::Status::kSnapshotting) {
    const bool manual = keep.what == Keep::What::kSnapshot;
    state_.row.status = manual ? store::Status::kSnapshotting : store::Status::kStopping;
    auto wanted = co_await WantsSnapshot(keep);
    // When in doubt the files are kept.
    if (!wanted || *wanted) {
      state_.row.snapshot = NewId("snap_");
      state_.row.snapshot_manual = manual && !keep.on_the_way;
      state_.row.snapshot_memory = WantsMemory(cause, keep);
      state_.row.snapshot_expiration_ms = keep.expiration_ms;
    }
  }
  if (!state_.row.requested_stop_at) state_.row.requested_stop_at = NowMs();
  state_.row.stop_reason = std::move(why);
  // The pending deletion alone is enough for the next start. But other callers must see a stop that takes long.
  const bool brief = keep.what == Keep::What::kNothing && commands_.empty() && contexts_.empty() && !HoldsDrive();
  if (!brief) {
    auto saved = co_await state_.Save();
    if (!saved) log::Error("session {}: {}", state_.row.id, saved.error().message);
  }
  const milliseconds saving = state_.row.snapshot_memory.empty() ? milliseconds(0) : kMemorySaving;
  if (state_.connected && cause != StopCause::kLost && clock_.Deadline() - NowMs() < (kStopMargin + saving).count()) {
    // The spawner's deadline must not cut the grace short.
    const milliseconds enough = state_.core->config.stop_grace + kStopMargin + saving;
    auto r = co_await state_.connected->machine().SetDeadline(enough);
    if (!r) log::Warn("session {}: deadline: {}", state_.row.id, r.error().message);
  }
  co_return Result<>{};
}

Task<> Session::Drain(bool graceful) {
  // What goes on later is not asked to end.
  graceful = graceful && state_.row.snapshot_memory.empty();
  commands_.ReleasePins();
  auto link = state_.LinkIfAny();
  if (graceful && link) {
    // Files that are kept have to reach the disk, which takes time. Quiesce gives up on an agent that is silent.
    const bool leaves_files = !state_.row.snapshot.empty() || HoldsDrive();
    const milliseconds enough = state_.core->config.stop_grace + (leaves_files ? kStopMargin : kShortMargin);
    auto quiesce = link->Quiesce(state_.core->config.stop_grace,
                                 leaves_files || state_.connected->has_own_kernel() ? milliseconds(0) : kShortSilence);
    auto quiesced = co_await WithTimeout(std::move(quiesce), enough);
    if (!quiesced) log::Warn("session {}: quiesce: {}", state_.row.id, quiesced.error().message);
    // An agent that is silent will not report the exits of its commands either.
    if (!quiesced && quiesced.error().code == Code::kTimeout) graceful = false;
  }
  // Exits are on their way; each needs its row. An agent that keeps them back does not hold us up.
  const int64_t until = NowMs() + kDrainTime.count();
  auto expected = [this, graceful] { return graceful && state_.LinkIfAny() != nullptr; };
  co_return co_await commands_.AwaitExits(until, std::move(expected));
}

Task<bool> Session::EndMachine(engine::Usage* usage) {
  if (!state_.connected) {
    // It was gone when we came, but perhaps an earlier daemon had seen its end and could not write it down any more.
    SB_CO_TRY(auto snapshots, co_await state_.core->deps.engine->ListSnapshots());
    co_return std::ranges::find(snapshots, state_.row.snapshot) != snapshots.end();
  }
  CountBytes();
  if (!state_.row.snapshot_memory.empty()) {
    SB_CO_TRYV(co_await KeepMemory());
    // Then it is a stop like any other: what was written has to reach the disk.
    if (state_.row.snapshot_memory.empty()) SB_CO_TRYV(co_await Drain(true));
  }
  const bool memory = !state_.row.snapshot_memory.empty();
  std::string keep_as = memory ? "" : state_.row.snapshot;
  auto destroyed = co_await state_.connected->Destroy(std::move(keep_as));
  if (destroyed) *usage = *destroyed;
  if (destroyed) co_return true;
  // A shutdown came between: the row stays "stopping" and the next start finishes the job.
  if (state_.core->closing) co_return std::unexpected(std::move(destroyed).error());
  if (memory && destroyed.error().code == Code::kNotFound) co_return true;
  // As long as the machine may write to a drive, nobody else can have it.
  if (state_.row.snapshot.empty() && !HoldsDrive()) {
    // The row says "stopped", so the next start finds the machine and destroys it.
    log::Error("machine {}: not destroyed: {}", state_.row.machine_id, destroyed.error().message);
    co_return false;
  }
  if (destroyed.error().code == Code::kNotFound) co_return false;
  co_return std::unexpected(std::move(destroyed).error());
}

bool Session::HoldsDrive() const {
  return std::ranges::any_of(state_.row.mounts, &store::SessionMount::writable);
}

Task<> Session::SnapshotDrives() {
  // The row is not finished before all are done: whoever takes over after a crash does this again.
  for (const store::SessionMount& mount : state_.row.mounts) {
    if (!mount.writable) continue;
    std::string snapshot = DriveSnapshotName(mount.drive, mount.state);
    std::string owner = OwnerOf(state_.row);
    auto taken = co_await state_.core->deps.engine->SnapshotDrive(mount.drive, std::move(snapshot), std::move(owner));
    if (!taken && taken.error().code == Code::kNotFound) {
      log::Error("session {}: drive {} is gone from the disk", state_.row.id, mount.drive);
      continue;
    }
    if (!taken) co_return taken;
    store::DriveEdit edit = [made = mount.state](store::Drive& drive) -> Result<> {
      drive.state = std::max(drive.state, made);
      drive.updated_at = NowMs();
      return {};
    };
    SB_CO_TRYV(co_await state_.core->directory->EditDrive(mount.drive, std::move(edit)));
  }
  co_return Result<>{};
}

store::Snapshot Session::MakeSnapshot(const engine::Usage& usage) const {
  store::Snapshot s;
  s.id = state_.row.snapshot;
  s.team = state_.row.team;
  s.project = state_.row.project;
  s.sandbox = state_.row.sandbox;
  s.session = state_.row.id;
  s.parent = state_.row.source_snapshot;
  s.manual = state_.row.snapshot_manual;
  s.region = state_.row.region;
  s.size_bytes = inherited_bytes_ + usage.disk_bytes + memory_bytes_;
  s.memory = state_.row.snapshot_memory;
  s.contexts = kept_contexts_;
  s.created_at = s.updated_at = s.last_used_at = *state_.row.stopped_at;
  CopyImage(state_.row, s);
  s.snapshot_layers = state_.row.snapshot_layers;
  const engine::EngineInfo engine = state_.core->engines.Of(state_.row.engine);
  s.engine = state_.row.engine;
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
  if (!*kept_ && !state_.row.snapshot.empty()) {
    log::Error("session {}: its machine is gone, and what it wrote with it", state_.row.id);
    state_.row.snapshot.clear();
    cause = StopCause::kLost;
  }
  co_await state_.tasks.Close();
  const bool oom = state_.connected && state_.connected->out_of_memory();
  contexts_.DropAll(oom ? "oom" : "killed",
                    oom ? state_.OutOfMemory() + ": the sandbox has stopped" : "the sandbox has stopped");
  auto lost = co_await commands_.EndAll();
  if (!lost) log::Error("session {}: {}", state_.row.id, lost.error().message);
  state_.phase = Phase::kEnded;
  state_.row.stopped_at = NowMs();
  state_.row.cpu_ms = usage_.cpu_ns / 1000000;
  state_.row.ingress = state_.row.carried_ingress;
  state_.row.egress = state_.row.carried_egress;
  state_.row.status = store::Status::kStopped;
  if (cause == StopCause::kLost) {
    state_.row.status = state_.connected ? store::Status::kFailed : store::Status::kAborted;
    state_.row.aborted_at = state_.row.stopped_at;
  }
  const int64_t duration =
      std::max<int64_t>(*state_.row.stopped_at - state_.row.started_at.value_or(*state_.row.stopped_at), 0);
  auto add = [cpu = *state_.row.cpu_ms, in = *state_.row.ingress, out = *state_.row.egress,
              duration](store::Sandbox& s) -> Result<> {
    s.total_cpu_ms += cpu;
    s.total_ingress += in;
    s.total_egress += out;
    s.total_duration_ms += static_cast<uint64_t>(duration);
    return {};
  };
  if (state_.row.snapshot.empty()) co_return co_await state_.SaveWith(std::move(add), std::move(keep.then));
  state_.row.updated_at = *state_.row.stopped_at;
  auto write = [row = state_.row, snapshot = MakeSnapshot(usage_), add](store::Store& store) mutable {
    return SaveWithSnapshot(store, row, std::move(snapshot), add);
  };
  co_return co_await state_.core->Combined(std::move(write));
}

Task<> Session::Discard() {
  state_.phase = Phase::kEnded;
  Result<> out;
  if (state_.connected) {
    auto destroyed = co_await state_.connected->Destroy();
    if (!destroyed) out = std::unexpected(std::move(destroyed).error());
  }
  co_await state_.tasks.Close();
  co_return out;
}

asio::awaitable<void> Session::Detach() {
  co_await state_.tasks.Close();
  contexts_.DropAll("killed", "the server is stopping");
  if (state_.phase == Phase::kRunning && CountBytes()) co_await state_.Save();
  if (state_.connected) co_await state_.connected->Close();
  commands_.Detach();
}

}  // namespace sandbar::sandbox
