// One live session: a machine with the commands that run in it, its clock and its row. Single loop.
//
// Shared (shared_ptr) by the domain's table of live sessions and by the calls in flight on it; a stopped session stays
// harmless in the hands of a late call. It never stops itself: it asks its owner (StopRequest), because a stop ends the
// very tasks that would run it. Its row in memory is the truth while it lives and is written through to the store.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "http/byte_stream.h"
#include "sandbox/code/code_context.h"
#include "sandbox/commands/command_log.h"
#include "sandbox/core.h"
#include "sandbox/memory/restored_memory.h"
#include "sandbox/roles.h"
#include "sandbox/sessions/connected_machine.h"
#include "sandbox/shared_result.h"

namespace sandbar::sandbox {

// A command that has not ended.
struct RunningCommand {
  store::Command row;
  std::shared_ptr<CommandLog> log;
  std::shared_ptr<SharedResult<store::Command>> done;
  uint64_t acked = 0;
  bool killed = false;  // by a caller: its 137 is not a mystery
  bool ending = false;  // its exit is being recorded
};

enum class StopCause { kRequested, kTimeout, kLost };

// What becomes of a stopped session's files.
struct Keep {
  // By record: a snapshot when the sandbox is persistent. Nothing: it is marked for deletion.
  enum class What { kByRecord, kNothing, kSnapshot };
  What what = What::kByRecord;
  std::optional<int64_t> expiration_ms;  // of a snapshot that was asked for
  bool on_the_way = false;               // a snapshot as part of something else: it lives and dies with the sandbox
  bool memory = false;                   // its processes are to go on later: kept whatever the record says
  // With nothing kept: what the store's thread does as soon as the end is on record.
  std::function<Result<>(store::Store&)> then;
};

// Of a sandbox that is on record as one to be deleted.
inline Keep KeepNothing() {
  Keep nothing;
  nothing.what = Keep::What::kNothing;
  return nothing;
}

class Session final : public MachineListener {
 public:
  enum class Phase { kStarting, kRunning, kStopping, kEnded };
  using StopRequest = std::function<void(StopCause cause, std::string why)>;

  Session(Core* core, store::Session row, std::map<std::string, std::string> env, StopRequest stop);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session() override = default;

  const store::Session& row() const { return row_; }
  Phase phase() const { return phase_; }
  ConnectedMachine* connected() { return connected_.get(); }
  // Where bytes of connections to its ports are counted; shared with those that may outlive it.
  const std::shared_ptr<http::Traffic>& previews() const { return previews_; }
  const egress::PolicyRef& policy() const { return policy_; }
  // So many packets that were neither TCP nor DNS, as a refusal like others.
  egress::Denial DroppedPackets(uint64_t count);
  // Set when it runs, or with the error that kept it from running.
  const std::shared_ptr<SharedResult<bool>>& started() const { return started_; }
  // Why nothing can be done with it now (kStopped, kStopping, kUnavailable), or success.
  Result<> Usable() const;

  // Takes the machine over and runs: source, policy, deadlines, row. On failure the caller destroys the session.
  Task<> Run(std::unique_ptr<ConnectedMachine> live, std::optional<SourceSpec> source,
             std::optional<RestoredMemory> restored = std::nullopt);
  // After a restart of the daemon: attaches to the machine and to the commands that are in it. A session whose stop
  // was under way is attached too (so that the stop can be finished), but does not become usable.
  // A machine that has ended or is gone leaves an error; the session can then only be stopped.
  Task<> Reattach(std::vector<store::Command> unfinished, bool present, bool alive);
  // The parts of a stop, in order. The owner saves and forgets the session afterwards.
  Task<> BeginStop(StopCause cause, std::string why, Keep keep);
  Task<> Drain(bool graceful);
  // An error means that the files could not be kept: they are still there, and End may be called again.
  Task<store::Sandbox> End(StopCause cause, Keep keep);
  // Undoes a start that failed: everything but the rows.
  Task<> Discard();
  // The daemon ends, the machine goes on.
  asio::awaitable<void> Detach();

  Task<> ExtendTimeout(int64_t duration_ms);
  // What the policy denies is denied at once, before anything slow; the rest is in force when this succeeds. When the
  // machine does not take the CA (kUnavailable), the policy is on record, and in force is what both it and the one
  // before allow.
  Task<> SetNetwork(egress::PolicyRef policy);
  void SetEnv(std::map<std::string, std::string> env) { env_ = std::move(env); }
  // How many bytes of its disk limit the snapshot takes that the session began from. SetInherited also tells the
  // machine, as soon as the machine runs.
  void NoteInherited(uint64_t bytes) { inherited_bytes_ = bytes; }
  Task<> SetInherited(uint64_t bytes);
  // It stops when no command ran and nobody held a Use for so long.
  void SetIdleTimeout(std::optional<int64_t> ms);
  // Counts one user of `session` for as long as it lives.
  static std::shared_ptr<void> Use(std::shared_ptr<Session> session);

  // Contexts that wait for their next cell.
  std::vector<KeptContext> IdleContexts() const;
  // Why the memory was not kept, when it should have been.
  const std::string& memory_lost() const { return memory_lost_; }

  Task<StartedCommand> Start(CommandSpec spec);
  std::shared_ptr<RunningCommand> Find(const std::string& command) const;
  Result<> Kill(const std::string& command, int signal);

  // session_code.cc. A cell that nobody waits for any more is to be abandoned: that interrupts it.
  Task<std::shared_ptr<CodeCell>> StartCode(CodeSpec spec);
  void AbandonCode(const std::shared_ptr<CodeCell>& cell);
  Result<CodeContextInfo> AddContext(CodeContextSpec spec);
  std::vector<CodeContextInfo> Contexts() const;
  Result<CodeContextInfo> InterruptContext(const std::string& id);
  Result<CodeContextInfo> RestartContext(const std::string& id);
  Result<CodeContextInfo> RemoveContext(const std::string& id);

  engine::GuestUser user() const { return {row_.uid, row_.gid, row_.user}; }
  Result<std::shared_ptr<engine::GuestLink>> Link() const;

 private:
  void OnOutput(const std::string& command, uint64_t offset, uint8_t stream, std::string_view bytes) override;
  void OnGap(const std::string& command, uint64_t offset, uint64_t bytes) override;
  void OnExit(const protocol::Exit& exit) override;
  void OnConnected() override;
  void OnLost(const std::string& why) override;

  struct SourceRun {
    explicit SourceRun(const asio::any_io_executor& ex) : changed(ex) {}
    void Take(std::string_view bytes);  // keeps the end
    std::string id, output, lost;
    std::optional<int> exit_code;
    Event changed;
  };
  // Runs the source's command under the source's policy; afterwards nothing is allowed.
  Task<> FetchSource(SourceSpec spec);
  Task<> AwaitSource();

  // memory_session.cc
  Task<> Inherit(RestoredMemory restored);
  Task<> TellInherited();
  // Under a new name; nothing when it is not one that was idle then.
  std::optional<std::string> InheritContext(const RestoredMemory& restored, const std::string& driver);
  // Ends the machine's life with its memory in the snapshot. When that fails only the files are left to be kept.
  Task<> KeepMemory();
  Task<std::string> InheritCommand(const RestoredMemory* restored, store::Command row, uint64_t produced);

  Task<store::Sandbox> Save();
  Task<store::Sandbox> SaveWith(store::SandboxEdit edit, std::function<Result<>(store::Store&)> then = nullptr);
  Task<bool> WantsSnapshot(Keep keep);
  // Whether its processes go on after the stop: "asked", "kept" or "".
  std::string WantsMemory(StopCause cause, const Keep& keep) const;
  bool HoldsDrive() const;
  Task<> SnapshotDrives();
  // Ends the machine. False: it is gone, and what it wrote with it.
  Task<bool> EndMachine(engine::Usage* usage);
  store::Snapshot MakeSnapshot(const engine::Usage& usage) const;
  Task<> InsertRow(store::Command row);
  Task<> FinishCommand(std::shared_ptr<RunningCommand> run, protocol::Exit exit);
  // Whether a command that died like this was a victim of the memory limit. `told`: so says the machine's own kernel.
  Task<bool> WasOutOfMemory(int code, bool told);
  std::string OutOfMemory() const { return "out of memory (limit " + std::to_string(row_.memory_mb) + " MiB)"; }
  Task<> FinishLostCommands();
  // Holds the output of ended commands to the session's budget, once so much of it is new that a look is worth it.
  Task<> TrimOutput(uint64_t added);
  Task<> RecoverCommands(std::vector<store::Command> unfinished);
  Task<> Clock();
  Task<> ArmDeadline();
  protocol::Exec MakeExec(const CommandSpec& spec, const std::string& id) const;
  std::shared_ptr<RunningCommand> Track(store::Command row, CommandLog::State state);
  void Ack(RunningCommand& run, bool all);
  // What the record says. One that cannot be read is deny-all: never more open than what was asked for.
  egress::PolicyRef RecordedPolicy();
  Task<> TellPolicyUnusable(std::string why);
  Task<> AwaitOtherPolicy(uint64_t change);
  // The machine trusts our CA from then on, if the policy needs that.
  Task<> TrustCa(egress::PolicyRef policy);
  // For a machine that the daemon before us may have left without it.
  Task<> TrustCaAgain();
  using ContextRef = std::shared_ptr<CodeContext>;
  Result<ContextRef> FindContext(const std::string& id) const;
  Result<ContextRef> PickContext(const CodeSpec& spec);
  Result<ContextRef> MakeContext(std::string id, CodeContextSpec spec);
  ContextRef ContextOf(const std::string& command) const;
  Task<> StartDriver(ContextRef context);
  Task<> SuperviseCell(ContextRef context, std::shared_ptr<CodeCell> cell);
  void PushCell(const CodeContext& context, CodeCell& cell);
  Task<> EndCell(ContextRef context, std::shared_ptr<CodeCell> cell, protocol::Exit exit);
  void OnDriverOutput(const std::string& command, uint64_t offset, uint8_t stream, std::string_view bytes);
  void OnDriverExit(const protocol::Exit& exit);
  // Kills the interpreter and what runs in it.
  void DropDriver(CodeContext& context, std::string why, const char* status = "killed");
  void DropContexts(const char* status, const std::string& why);
  // Interpreters that a daemon before us started: their contexts are lost.
  void KillOldDrivers();

  // Brings the row's byte counts up to date; true when they changed.
  bool CountBytes();
  // How long it may go on without being used; nothing when it may for ever.
  std::optional<int64_t> IdleLeft() const;
  int64_t Deadline() const { return row_.started_at.value_or(row_.created_at) + row_.timeout_ms; }

  Core* core_;
  store::Session row_;
  std::map<std::string, std::string> env_;  // the sandbox's, for every command
  StopRequest stop_;
  Phase phase_ = Phase::kStarting;
  std::shared_ptr<SharedResult<bool>> started_;
  std::unique_ptr<ConnectedMachine> connected_;
  uint64_t inherited_bytes_ = 0;
  bool corrected_ = false;             // the machine has not been told `inherited_bytes_` yet
  std::unique_ptr<SourceRun> source_;  // while it is fetched
  egress::PolicyRef policy_ =
      egress::DenyAll();         // on record; in force as well unless SetNetwork is under way or failed
  uint64_t policy_changes_ = 0;  // calls of SetNetwork
  std::map<std::string, std::shared_ptr<RunningCommand>> commands_;
  std::map<std::string, ContextRef> contexts_;
  std::vector<std::string> unacked_exits_;             // recorded while no connection was at hand
  uint64_t earlier_ingress_ = 0, earlier_egress_ = 0;  // of daemons before us
  std::shared_ptr<http::Traffic> previews_ = std::make_shared<http::Traffic>();
  uint64_t oom_kills_ = 0;               // counted so far
  uint64_t dropped_packets_ = 0;         // the same
  int64_t dropped_at_ = 0;               // when there were more of them than before
  uint64_t untrimmed_ = UINT64_MAX / 2;  // bytes of output since the last look; the first is at once
  std::optional<int64_t> idle_timeout_ms_;
  size_t users_ = 0;
  std::chrono::steady_clock::time_point last_used_ = std::chrono::steady_clock::now();
  std::optional<bool> kept_;  // once the machine has ended: whether what it wrote is there
  engine::Usage usage_;
  uint64_t memory_bytes_ = 0;  // kept with the snapshot
  std::string kept_contexts_, memory_lost_;
  Event command_ended_;
  Event deadline_moved_;
  Event policy_changed_;
  TaskGroup tasks_;
};

}  // namespace sandbar::sandbox
