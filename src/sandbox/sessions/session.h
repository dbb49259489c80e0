// One active session: a machine with the commands that run in it, its clock and its row. Single loop.
//
// Shared (shared_ptr) by the registry of active sessions and by the calls in flight on it; a stopped session stays
// harmless in the hands of a late call. It never stops itself: it asks its owner (StopRequest), because a stop ends the
// very tasks that would run it. Its row in memory is the truth while it is active and is written through to the store.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "http/byte_stream.h"
#include "sandbox/code/session_contexts.h"
#include "sandbox/commands/session_commands.h"
#include "sandbox/memory/restored_memory.h"
#include "sandbox/sessions/session_clock.h"
#include "sandbox/sessions/session_network.h"
#include "sandbox/sessions/session_state.h"
#include "sandbox/sessions/source_fetch.h"
#include "sandbox/shared_result.h"

namespace sandbar::sandbox {

enum class StopCause { kRequested, kTimeout, kLost };

// What becomes of a stopped session's files.
struct Keep {
  // kByRecord: a snapshot if the sandbox is persistent. kNothing: the sandbox is being deleted.
  enum class What { kByRecord, kNothing, kSnapshot };
  What what = What::kByRecord;
  std::optional<int64_t> expiration_ms;  // of a snapshot that was asked for
  bool on_the_way = false;               // the snapshot counts as made by a stop, not as made by a caller
  bool memory = false;                   // its processes are to go on later: kept whatever the record says
  // With nothing kept: runs on the store's thread as soon as the end is on record.
  std::function<Result<>(store::Store&)> then;
};

// For a sandbox whose deletion is pending.
inline Keep KeepNothing() {
  Keep nothing;
  nothing.what = Keep::What::kNothing;
  return nothing;
}

class Session final : public MachineListener {
 public:
  using Phase = SessionPhase;
  using StopRequest = std::function<void(StopCause cause, std::string why)>;

  Session(Core* core, store::Session row, std::map<std::string, std::string> env, StopRequest stop);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session() override = default;

  const store::Session& row() const { return state_.row; }
  Phase phase() const { return state_.phase; }
  // Null before the machine runs.
  ConnectedMachine* connected() { return state_.connected.get(); }
  Result<> Usable() const { return state_.Usable(); }
  Result<std::shared_ptr<engine::GuestLink>> Link() const { return state_.Link(); }
  engine::GuestUser user() const { return {state_.row.uid, state_.row.gid, state_.row.user}; }
  // Set when it runs, or with the error that kept it from running.
  const std::shared_ptr<SharedResult<bool>>& started() const { return started_; }
  // The counter of bytes of connections to its ports; shared with connections that may outlive the session.
  const std::shared_ptr<http::Traffic>& previews() const { return previews_; }

  SessionCommands& commands() { return commands_; }
  SessionContexts& contexts() { return contexts_; }
  SessionNetwork& network() { return network_; }
  SessionClock& clock() { return clock_; }
  void SetEnv(std::map<std::string, std::string> env) { state_.env = std::move(env); }
  // Counts one user of `session` for as long as the result lives.
  static std::shared_ptr<void> Use(std::shared_ptr<Session> session);

  // Takes the machine over and runs: source, policy, deadlines, row. On failure the caller destroys the session.
  Task<> Run(std::unique_ptr<ConnectedMachine> connected, std::optional<SourceSpec> source,
             std::optional<RestoredMemory> restored = std::nullopt);
  // After a restart of the server: attaches to the machine and to the commands that are in it. A session whose stop
  // was under way is attached too (so that the stop can be finished), but does not become usable.
  // A machine that has ended or is gone leaves an error; the session can then only be stopped.
  Task<> Reattach(std::vector<store::Command> unfinished, bool present, bool alive);
  // The steps of a stop, in order. The owner saves and forgets the session afterwards.
  Task<> BeginStop(StopCause cause, std::string why, Keep keep);
  Task<> Drain(bool graceful);
  // An error means that the files could not be kept: they are still there, and End may be called again.
  Task<store::Sandbox> End(StopCause cause, Keep keep);
  // Undoes a start that failed: everything but the rows.
  Task<> Discard();
  // The server ends, the machine goes on.
  asio::awaitable<void> Detach();

  // How many bytes of its disk limit the snapshot takes that the session began from. SetInherited also tells the
  // machine, as soon as the machine runs.
  void NoteInherited(uint64_t bytes) { inherited_bytes_ = bytes; }
  Task<> SetInherited(uint64_t bytes);
  // Why the memory was not kept, when it should have been.
  const std::string& memory_lost() const { return memory_lost_; }

 private:
  void OnOutput(const std::string& command, uint64_t offset, uint8_t stream, std::string_view bytes) override;
  void OnGap(const std::string& command, uint64_t offset, uint64_t bytes) override;
  void OnExit(const protocol::Exit& exit) override;
  void OnConnected() override;
  void OnLost(const std::string& why) override;

  // memory/session_memory.cc
  Task<> TakeOver(RestoredMemory restored);
  // Whether its processes go on after the stop: "asked", "kept" or "".
  std::string WantsMemory(StopCause cause, const Keep& keep) const;
  // Ends the machine's life with its memory in the snapshot. When that fails only the files are left to be kept.
  Task<> KeepMemory();

  // session.cc
  void StartClock();
  Task<> SaveBytes();
  // Brings the row's byte counts up to date; true when they changed.
  bool CountBytes();
  Task<> TellInherited();

  // session_end.cc
  Task<bool> WantsSnapshot(Keep keep);
  bool HoldsDrive() const;
  // What the session wrote to its drives becomes the drive snapshot that readers see from then on.
  Task<> SnapshotDrives();
  // Ends the machine. False: it is gone, and what it wrote with it.
  Task<bool> EndMachine(engine::Usage* usage);
  store::Snapshot MakeSnapshot(const engine::Usage& usage) const;

  StopRequest stop_;
  SessionState state_;
  SessionCommands commands_{&state_};
  SessionContexts contexts_{&state_};
  SessionNetwork network_{&state_};
  SourceFetch source_{&state_, &network_};
  SessionClock clock_{&state_, &commands_};
  std::shared_ptr<SharedResult<bool>> started_;
  std::shared_ptr<http::Traffic> previews_ = std::make_shared<http::Traffic>();
  uint64_t earlier_ingress_ = 0, earlier_egress_ = 0;  // of servers before us
  uint64_t inherited_bytes_ = 0;
  bool corrected_ = false;    // the machine has not been told `inherited_bytes_` yet
  std::optional<bool> kept_;  // once the machine has ended: whether what it wrote is there
  engine::Usage usage_;
  uint64_t memory_bytes_ = 0;  // kept with the snapshot
  std::string kept_contexts_, memory_lost_;
};

}  // namespace sandbar::sandbox
