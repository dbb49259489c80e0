// The domain itself: the table of live sessions, and the calls of the roles on it. Private to sandbox/; see domain.h.
// Split over service_*.cc by subject. Single loop.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "sandbox/core.h"
#include "sandbox/sandboxes/pending_deletion.h"
#include "sandbox/sessions/pool.h"
#include "sandbox/sessions/session.h"
#include "sandbox/shared_result.h"
#include "sandbox/snapshots/converter.h"
#include "sandbox/wakeable_loop.h"

namespace sandbar::sandbox {

class ServiceImpl final : public Domain {
 public:
  ServiceImpl(asio::any_io_executor ex, Config config, Dependencies dependencies, Ladder ladder);
  ~ServiceImpl() override;
  const Roles& roles() const override;

  // service_lifecycle.cc
  Task<> Start() override;
  Task<> StopAll() override;
  asio::awaitable<void> Close() override;
  ServerInfo info() const;
  Task<SandboxView> Stop(Scope scope, std::string session);
  Task<store::Sandbox> Delete(Scope scope, std::string name, bool orphan_snapshots);
  Task<store::Session> ExtendTimeout(Scope scope, std::string session, int64_t duration_ms);
  Task<store::Session> SetNetwork(Scope scope, std::string session, egress::NetworkPolicy policy);

  // service_usage.cc
  std::shared_ptr<void> Use(const Scope& scope, const std::string& session);
  std::optional<store::Session> Running(const std::string& session) const;
  Task<std::vector<store::ProjectUsage>> Usage(Scope scope);

  // service_create.cc
  Task<SandboxView> Create(Scope scope, CreateSpec spec);

  // service_snapshots.cc
  Task<SnapshotTaken> TakeSnapshot(Scope scope, std::string session, std::optional<int64_t> expiration_ms);
  Task<Page<store::Snapshot>> ListSnapshots(Scope scope, ListQuery query);
  Task<store::Snapshot> GetSnapshot(Scope scope, std::string id);
  Task<store::Snapshot> DeleteSnapshot(Scope scope, std::string id);
  Task<SnapshotTree> GetSnapshotTree(Scope scope, std::string id, int limit, bool descendants);

  // service_drives.cc
  Task<DriveView> MakeDrive(Scope scope, std::string name, DriveSpec spec);
  Task<Page<DriveView>> ListDrives(Scope scope, ListQuery query);
  Task<DriveView> DeleteDrive(Scope scope, std::string name);

  // service_logs.cc
  Task<> KeepLogsBounded();
  Task<> CountAllLogs();
  Task<> TrimByPlan(std::vector<LogBudget::Plan> plans);
  // service_durability.cc
  Task<store::Snapshot> VerifySnapshot(Scope scope, std::string id);
  Task<std::vector<store::Notice>> Notices(Scope scope, std::string name);

  // service_compare.cc
  Task<engine::LayerDiff> Diff(Scope scope, std::string before, std::string after);
  Task<store::Sandbox> Promote(Scope scope, std::string fork, std::optional<std::string> into);
  Task<RaceOutcome> Race(Scope scope, RaceSpec spec);

  // memory_service.cc
  Task<SandboxView> Pause(Scope scope, std::string name);
  Task<SandboxView> Resume(Scope scope, std::string name, ResumeFrom from);

  // service_resume.cc
  Task<SandboxView> Fork(Scope scope, std::string name, ForkSpec spec);

  // service_records.cc
  Task<SandboxView> Get(Scope scope, std::string name, bool resume);
  Task<Page<store::Sandbox>> List(Scope scope, ListQuery query);
  Task<store::Sandbox> Update(Scope scope, std::string name, UpdateSpec spec);
  Task<Page<store::Session>> ListSessions(Scope scope, ListQuery query);
  Task<SandboxView> GetSession(Scope scope, std::string session);
  Task<NetworkView> Network(Scope scope, std::string session);
  Task<store::Token> CheckToken(std::string presented);

  // routes.cc
  Task<RouteTarget> FindRoute(std::string subdomain);
  Task<DialledPort> DialPort(Scope scope, std::string session, int port);
  Task<store::PortRoute> SetRouteToken(Scope scope, std::string name, int port, std::optional<std::string> token);

  // service_commands.cc
  Task<StartedCommand> StartCommand(Scope scope, std::string session, CommandSpec spec);
  Task<store::Command> GetCommand(Scope scope, std::string session, std::string command);
  Task<store::Command> WaitCommand(Scope scope, std::string session, std::string command);
  Task<std::vector<store::Command>> ListCommands(Scope scope, std::string session);
  Task<store::Command> KillCommand(Scope scope, std::string session, std::string command, int signal);
  Task<std::unique_ptr<LogReader>> OpenLog(Scope scope, std::string session, std::string command);
  // service_code.cc
  Task<std::unique_ptr<CodeStream>> RunCode(Scope scope, std::string name, CodeSpec spec);
  Task<CodeContextInfo> CreateContext(Scope scope, std::string name, CodeContextSpec spec);
  Task<std::vector<CodeContextInfo>> ListContexts(Scope scope, std::string name);
  Task<CodeContextInfo> ChangeContext(Scope scope, std::string name, std::string id, ContextChange change);

  Task<std::unique_ptr<engine::FileStream>> ReadFile(Scope scope, std::string session, std::string path,
                                                     std::optional<std::string> cwd);
  Task<> WriteTar(Scope scope, std::string session, std::optional<std::string> cwd, engine::ByteSource* source);
  Task<> MakeDir(Scope scope, std::string session, std::string path, std::optional<std::string> cwd, bool recursive);

 private:
  using StopOutcome = std::shared_ptr<Outcome<store::Sandbox>>;
  struct Live {
    std::shared_ptr<Session> session;
    StopOutcome stop;  // set once a stop is under way: everyone waits for the same one
  };

  // service_create.cc
  Task<SandboxView> CreateNow(Scope scope, CreateSpec spec);
  // What a new sandbox boots from: an image, or a snapshot with the image below it.
  struct Base {
    images::Image image;
    std::vector<std::string> snapshot_layers;
    std::string snapshot;
    std::optional<engine::RootfsFormat> format;  // of the snapshot
  };
  Task<Base> ResolveBase(const CreateSpec* spec, Scope scope);
  Base BaseOf(const store::Snapshot& snapshot) const;
  Task<store::Snapshot> UsableSnapshot(Scope scope, std::string id);
  struct NewSandbox {
    store::Sandbox record;  // variables in clear, no policy
    Base base;
    egress::PolicyRef policy;  // null: never set
    std::optional<SourceSpec> source;
    std::optional<Heritage> heritage;
  };
  Task<SandboxView> CreateFrom(Scope scope, NewSandbox wanted);
  // The sandbox's policy, as compiled; null when it was never set.
  Result<egress::PolicyRef> PolicyOf(const store::Sandbox& sandbox) const;
  // The same, but deny-all and a notice when the recorded one cannot be used.
  Task<egress::PolicyRef> PolicyToStartWith(store::Sandbox sandbox);
  Task<images::Image> ResolveImage(bool v1, std::optional<std::string> image, std::optional<std::string> runtime);
  Result<store::Session> MakeSession(const store::Sandbox& sandbox, const Base& base);
  // The engine's part of a boot. It may go before the record: a machine that was never started has nothing in it, and
  // the next start destroys it.
  using Booting = std::shared_ptr<Outcome<std::unique_ptr<engine::Machine>>>;
  engine::BootRequest RequestOf(const store::Session& row) const;
  Booting BeginBoot(const store::Session& row);
  Task<> DropBooted(Booting booting);
  // With a machine of the pool, one whose boot has begun, or neither.
  Task<SandboxView> Launch(std::shared_ptr<Session> session, store::Sandbox sandbox,
                           std::unique_ptr<LiveMachine> pooled, Booting booting, std::optional<SourceSpec> source,
                           std::optional<Heritage> heritage = std::nullopt);
  // Snapshot and drives as the session's engine needs them.
  Task<> FitFormats(store::Session row, engine::Rootfs* rootfs);
  Task<> Undo(std::shared_ptr<Session> session, Error why);

  // service_disk.cc
  // What the snapshot of a session takes of its machine's disk limit.
  Task<uint64_t> InheritedBytes(store::Session row, uint64_t enough);
  // Never less than it is; and exactly when the layer was read, which is done now when it may be more than `enough`.
  Task<uint64_t> BytesOf(store::Snapshot snapshot, uint64_t enough);
  // kBadRequest when a new sandbox would be over its limit from the start.
  Task<> CheckFits(store::Snapshot snapshot);
  // A layer was read: machines that stand on it may have more than was assumed.
  Task<> CorrectLimits(store::Layer layer);
  std::shared_ptr<Session> AddLive(store::Session row, std::map<std::string, std::string> env);

  // service_lifecycle.cc
  StopOutcome RequestStop(const std::string& session, StopCause cause, std::string why, Keep keep = {});
  Task<store::Sandbox> StopNow(std::shared_ptr<Session> session, StopCause cause, std::string why, Keep keep);

  // service_delete.cc
  Task<store::Sandbox> DeleteNow(Scope scope, std::string name, bool orphan_snapshots);
  // Marked for deletion if it has something to stop.
  struct Found {
    store::Sandbox sandbox;
    bool marked = false;
  };
  Task<Found> FindAndMark(Scope scope, std::string name, bool orphan_snapshots);
  // The sessions of a sandbox whose record is gone; nothing yet as long as it is there.
  using Removed = std::shared_ptr<std::optional<std::vector<std::string>>>;
  // Removes the record too, unless the stop was another's.
  Task<store::Sandbox> StopForDeletion(store::Sandbox sandbox, bool orphan_snapshots, Removed removed);
  // The records and logs, if `meant` says yes: meanwhile there may be another one of that name.
  Task<> RemoveRecord(store::SandboxKey key, bool orphan_snapshots, std::function<bool(const store::Sandbox&)> meant);
  Task<> RemoveLogs(std::string sandbox, std::vector<std::string> sessions);
  Task<> RemoveDisposable();
  Task<> RemoveUnclaimed();
  Task<> FinishDeletions();

  // service_snapshots.cc
  Task<> KeepSnapshotsTidy();
  Task<> Tidy();
  Task<> FlattenLongChains();
  Task<bool> AllGood(std::vector<std::string> layers);
  void Collect() { collect_.Ask(); }
  Task<SnapshotTreeNode> TreeNode(store::Snapshot snapshot);

  // service_drives.cc
  Task<DriveView> MakeDriveNow(Scope scope, std::string name, DriveSpec spec);
  Task<> TidyDrives();
  // service_durability.cc
  Task<store::Layer> CheckLayer(std::string name);
  Task<store::Layer> CheckLayerNow(std::string name);
  Task<store::Layer> ScanLayer(std::string name);
  Task<> CheckLayers(std::vector<std::string> layers);
  Task<> RefuseDamaged(store::Snapshot snapshot);
  Task<> StartScans();
  Task<> SealOrScrub(std::string name, std::string owner);
  void Seal() {
    retry_seal_ = true;
    seal_.Ask();
  }
  Task<> KeepSnapshotsDurable();
  Task<> CheckDiskAtStart();

  // service_compare.cc
  Task<engine::LayerStack> StackOf(Scope scope, std::string what, bool base);
  Task<store::Sandbox> PromoteNow(Scope scope, std::string fork, std::optional<std::string> into);

  // service_race.cc
  Task<RaceOutcome> RaceNow(Scope scope, RaceSpec spec);
  struct RaceState {
    RaceSpec spec;
    RaceOutcome outcome;
  };
  Task<> KeepWinner(Scope scope, store::Sandbox source, std::shared_ptr<RaceState> race);
  Task<> RunRacer(Scope scope, std::shared_ptr<RaceState> race, size_t index);

  // service_resume.cc
  Task<SandboxView> ResumeNow(store::Sandbox sandbox, ResumeFrom from);
  Task<SandboxView> ResumeFromDisk(store::Sandbox sandbox, std::string why);
  Task<SandboxView> ForkNow(Scope scope, std::string name, ForkSpec spec);

  // memory_service.cc
  Task<SandboxView> ForkLive(Scope scope, store::Sandbox source, NewSandbox wanted);
  Task<Base> BaseOf(store::Session running, std::string head);
  Heritage HeritageOf(Scope scope, std::string session, std::string snapshot);
  Result<std::optional<Heritage>> MemoryOf(const Scope& scope, const store::Snapshot& snapshot, ResumeFrom from);
  Task<> DropMemory(store::Snapshot snapshot);
  Task<> RemoveSpent(std::string snapshot);
  Task<> TidyMemory();
  Task<> PurgeLog();
  Task<> SnapshotOnTheWay(std::string session);
  Task<> ClearTraces();
  Result<> CheckLive(const Session& session) const;
  Task<> DropLiveSnapshot(std::string snapshot);
  Task<> TidyLiveSnapshots();
  Task<store::Session> Apply(std::shared_ptr<Session> session, Task<> change);

  // recovery.cc
  Task<> Recover();
  struct Remains {
    bool present = false, alive = false;  // its machine
    std::optional<Doomed> doomed;         // one of its name is marked for deletion
  };
  Task<> RecoverSession(store::Session row, Remains remains, Result<>* failure);
  std::map<std::string, std::string> OpenEnv(const store::Sandbox& sandbox) const;
  Task<> RollBack(store::Session row, bool present);
  Task<> DestroyMachine(std::string machine_id);
  Task<> DestroyLeftover(std::string machine_id, bool started);

  // service_records.cc
  Task<> CheckDemand(Scope scope, std::string name, UpdateSpec spec);
  Task<store::Sandbox> FindSandbox(Scope scope, std::string name);
  Task<store::Sandbox> SandboxOf(store::Session session);
  Task<store::Session> FindSession(Scope scope, std::string id);
  Task<std::shared_ptr<Session>> FindLive(Scope scope, std::string id);
  Task<std::shared_ptr<Session>> FindRunning(Scope scope, std::string name);  // resumes
  const Live* LiveOf(const std::string& session) const;

  struct Faces;  // service_faces.h

  Core core_;
  std::unique_ptr<Faces> faces_;
  std::map<std::string, Live> sessions_;
  size_t creating_ = 0;
  std::map<std::string, std::shared_ptr<Outcome<SandboxView>>> resuming_;  // by team, project and name
  std::vector<store::Token> tokens_;
  Pool pool_;
  Converter formats_;
  bool purge_ = false;                 // deleted rows are in the database's log
  Errand collect_;                     // snapshots may have become garbage
  std::set<std::string> unflattened_;  // snapshots on damaged or unreadable layers
  std::set<std::string> unreadable_;   // layers beyond the layer scanner's limits
  std::set<std::string> not_now_;      // layers that could not be read lately
  std::set<std::string> scanning_;     // owners of layers that are being read
  std::string last_scanned_;           // the last of them
  Errand trim_;                        // there is more output on disk
  bool retry_seal_ = false;
  Errand seal_;                                                             // there is a new layer, or a scan has ended
  std::map<std::string, std::shared_ptr<Outcome<store::Layer>>> checking_;  // layers being read, by name
  std::set<std::string> forking_;  // live snapshots that somebody is about to go on from
  TaskGroup tasks_;
};

}  // namespace sandbar::sandbox
