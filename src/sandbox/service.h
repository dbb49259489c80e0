// The domain's public face: what the fronts (api/, later MCP) may ask for. Sandboxes, sessions, commands, files.
// Single loop. Names and ids from outside are checked here against the caller's Scope: a foreign id answers as unknown.
// Acknowledged means durable: rows are written before a call returns.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "async/task.h"
#include "base/fd.h"
#include "egress/egress.h"
#include "egress/policy.h"
#include "engine/engine.h"
#include "engine/guest_link/guest_link.h"
#include "sandbox/code.h"
#include "sandbox/source.h"
#include "store/records.h"

namespace sandbar::http {
struct Traffic;  // http/byte_stream.h
}

namespace sandbar::sandbox {

// Who asks. "*" in a token's scope was already resolved by auth to what the request named.
struct Scope {
  std::string team;
  std::string project;       // for routes that name one
  bool any_project = false;  // the token may act on every project of the team (bare session ids)
  bool any_team = false;
};

struct Resources {
  std::optional<int> vcpus;
  std::optional<int> memory_mb;
};

struct CreateSpec {
  std::optional<SourceSpec> source;
  bool v1 = false;
  std::optional<std::string> name;
  std::optional<std::string> runtime, image, source_snapshot;
  std::optional<int64_t> timeout_ms, idle_timeout_ms;
  Resources resources;
  std::optional<bool> persistent;
  std::optional<egress::NetworkPolicy> network;
  std::map<std::string, std::string> env, tags;
  std::vector<int> ports;
  std::optional<std::string> region;
  std::vector<std::string> failover_regions;
  std::optional<std::string> network_id;
  std::optional<int64_t> snapshot_expiration_ms;
  std::optional<store::KeepLastSnapshots> keep_last_snapshots;
  std::map<std::string, store::Mount> mounts;  // by absolute path
  store::IsolationDemand isolation;
  std::string digest;  // of the request, for those who need to know it again
};

// Absent: unchanged. For the doubly optional ones an inner nullopt clears.
struct UpdateSpec {
  std::optional<bool> persistent;
  Resources resources;
  std::optional<int64_t> timeout_ms;
  std::optional<std::optional<int64_t>> idle_timeout_ms;
  std::optional<egress::NetworkPolicy> network;
  std::optional<std::map<std::string, std::string>> env, tags;
  std::optional<std::vector<int>> ports;  // replaces all; a port that stays keeps its route
  std::optional<std::string> region;
  std::optional<std::vector<std::string>> failover_regions;
  std::optional<std::optional<std::string>> network_id;
  std::optional<int64_t> snapshot_expiration_ms;
  std::optional<std::optional<store::KeepLastSnapshots>> keep_last_snapshots;
  std::optional<std::map<std::string, store::Mount>> mounts;  // replaces all, from the next session on
  store::IsolationDemand isolation;                           // raises what the sandbox demands
  std::optional<std::string> current_snapshot;                // roll back (or forward) to this one
};

// A copy of a sandbox's record and of its newest snapshot, with changes.
struct ForkSpec {
  std::optional<std::string> name;
  bool live = false;  // of the running machine, with its processes, instead of the newest snapshot
  UpdateSpec changes;
};

// What a stopped sandbox goes on from. Either: its memory when its stop kept it; the files alone only when the memory
// is of no use here and nobody had asked for it.
enum class ResumeFrom { kEither, kMemory, kDisk };

// Absent: as it is, or the default for a new one.
struct DriveSpec {
  std::optional<std::string> region;
  std::optional<uint64_t> max_size_bytes;
};

struct DriveView {
  store::Drive drive;
  std::string session, sandbox;  // who has it read-write; empty: nobody
  bool created = false;
};

struct SnapshotTaken {
  store::Snapshot snapshot;
  store::Session session;
};

struct SnapshotTreeNode {
  store::Snapshot snapshot;
  std::vector<store::Snapshot> siblings;
};

struct SnapshotTree {
  SnapshotTreeNode anchor;
  std::vector<SnapshotTreeNode> nodes;  // nearest first, without the anchor
  std::string next;                     // where to go on; empty: the end
};

// One command, run in several forks of a sandbox at once: which of them did best?
struct RaceSpec {
  std::string source, command;
  std::vector<std::string> args;
  int count = 2;
  std::string score;    // empty: whoever exits with 0 first; else a pattern whose last match in stdout is a number
  bool lowest = false;  // the smallest number wins
  std::string keep = "promote";  // "promote": the winner becomes the source's head; "fork": it stays beside it; "none"
};

struct Racer {
  std::string name, session;
  std::optional<int> exit_code;
  int64_t duration_ms = 0;
  std::optional<double> score;
  std::string error;   // why it did not finish
  std::string output;  // the end of stdout
};

struct RaceOutcome {
  std::vector<Racer> racers;
  std::optional<size_t> winner;  // none: nobody exited with 0, or had a number
  std::string snapshot;          // what the winner left, when it was promoted
};

struct SandboxView {
  store::Sandbox sandbox;
  store::Session session;
  bool resumed = false;
  std::optional<store::Snapshot> snapshot;   // of a stop: what the session left
  std::optional<engine::LiveSnapshot> live;  // of a live fork: what the source paid for it
};

struct CommandSpec {
  std::string command;
  std::vector<std::string> args;
  std::optional<std::string> cwd;
  std::map<std::string, std::string> env;
  bool sudo = false;
  std::optional<int64_t> timeout_ms;
  // The caller attaches a log reader at once and wants every byte, with back-pressure.
  bool follow_from_start = false;
};

struct ListQuery {
  int limit = 20;
  std::string cursor;
  std::string sort_by = "createdAt";  // createdAt | name | statusUpdatedAt
  bool ascending = false;
  std::string name_prefix;
  std::optional<std::pair<std::string, std::string>> tag;
  std::string sandbox;  // sessions: only of this name
  // v1 only: exclusive bounds on createdAt, ms
  std::optional<int64_t> since, until;
};

template <class T>
struct Page {
  std::vector<T> items;
  std::string next;  // empty: last page
};

struct LogChunk {
  uint8_t stream = 1;  // 1 stdout, 2 stderr
  std::string bytes;   // raw; empty together with gap == 0 means the end of the log
  uint64_t gap = 0;    // this many bytes are missing before what follows
};

// A position in a command's output: replays from the start, then follows until the command ended.
class LogReader {
 public:
  virtual ~LogReader() = default;
  virtual Task<LogChunk> Next() = 0;
  // All that was written so far has been read and the command goes on: Next() would wait.
  virtual bool caught_up() const = 0;
};

struct StartedCommand {
  store::Command command;
  std::unique_ptr<LogReader> log;  // set when follow_from_start
};

// What a session's network let through and what it did not. Gone with the session.
struct NetworkView {
  egress::PolicyRef policy;  // in force; deny-all for a session that has ended
  std::vector<egress::Denial> denials;
  std::vector<egress::Attempt> attempts;
};

// What a preview's name leads to.
struct RouteTarget {
  std::string team, project, sandbox, session;
  store::PortRoute route;
};

// A connection into a machine, and where its bytes are to be counted.
struct DialledPort {
  Fd fd;
  std::shared_ptr<http::Traffic> traffic;
};

struct ServerInfo {
  std::string default_network_mode;
  std::string engine;  // of sandboxes that demand none
  int isolation_class = 1;
  size_t running = 0;
  std::vector<engine::EngineInfo> engines;  // all that it knows, usable or not
};

// A sandbox with this tag, and "1" as its value, is not kept as a record either: it goes some time (its own time limit)
// after it stopped, unless it has a snapshot to go on from.
inline constexpr char kDisposableTag[] = "sandbar.disposable";

class Service {
 public:
  virtual ~Service() = default;
  virtual ServerInfo info() const = 0;

  // kNameTaken when it is. kUnsupported when no engine here meets the demanded isolation; the same goes for
  // every later start of the sandbox and of its forks.
  virtual Task<SandboxView> Create(Scope scope, CreateSpec spec) = 0;
  virtual Task<SandboxView> Get(Scope scope, std::string name, bool resume) = 0;
  virtual Task<Page<store::Sandbox>> List(Scope scope, ListQuery query) = 0;
  virtual Task<store::Sandbox> Update(Scope scope, std::string name, UpdateSpec spec) = 0;
  // Its snapshots stay unless `orphan_snapshots`: then those that no other sandbox stands on go too.
  virtual Task<store::Sandbox> Delete(Scope scope, std::string name, bool orphan_snapshots) = 0;
  // Boots from the source's current snapshot, from its image when there is none; a live one goes on where the source's
  // machine is, with all that runs there (kUnsupported where the engine cannot do that).
  virtual Task<SandboxView> Fork(Scope scope, std::string name, ForkSpec spec) = 0;

  // Stops the session with its memory, for Resume to go on with all that ran. kUnsupported where the engine cannot.
  virtual Task<SandboxView> Pause(Scope scope, std::string name) = 0;
  // A session that runs: the current one, or a new one. kConflict when it cannot go on from what was demanded.
  virtual Task<SandboxView> Resume(Scope scope, std::string name, ResumeFrom from) = 0;

  // Stops the session as part of it.
  virtual Task<SnapshotTaken> TakeSnapshot(Scope scope, std::string session, std::optional<int64_t> expiration_ms) = 0;
  virtual Task<Page<store::Snapshot>> ListSnapshots(Scope scope, ListQuery query) = 0;
  virtual Task<store::Snapshot> GetSnapshot(Scope scope, std::string id) = 0;
  virtual Task<store::Snapshot> DeleteSnapshot(Scope scope, std::string id) = 0;
  // Ancestors, or descendants along the first children.
  virtual Task<SnapshotTree> GetSnapshotTree(Scope scope, std::string id, int limit, bool descendants) = 0;

  // While the caller holds it, the session is in use and its idle clock stands. Null when there is no such live
  // session.
  virtual std::shared_ptr<void> Use(const Scope& scope, const std::string& session) = 0;
  // The session's row if its machine runs now.
  virtual std::optional<store::Session> Running(const std::string& session) const = 0;
  // Per project, up to now: running sessions included.
  virtual Task<std::vector<store::ProjectUsage>> Usage(Scope scope) = 0;
  // The drive of this name, or a new one. kConflict when it exists with another region or size than asked for.
  virtual Task<DriveView> MakeDrive(Scope scope, std::string name, DriveSpec spec) = 0;
  virtual Task<Page<DriveView>> ListDrives(Scope scope, ListQuery query) = 0;  // sorted by createdAt, updatedAt or name
  virtual Task<DriveView> DeleteDrive(Scope scope, std::string name) = 0;      // kConflict while a session can write
  // Reads all of it and compares with its manifest; `damage` of the answer says what was found.
  virtual Task<store::Snapshot> VerifySnapshot(Scope scope, std::string id) = 0;
  // What happened to a sandbox that no call could have said; of the whole project when `name` is empty.
  virtual Task<std::vector<store::Notice>> Notices(Scope scope, std::string name) = 0;
  // Between two snapshots, by id or by the name of a sandbox (its newest one). `before` empty: against the image.
  virtual Task<engine::LayerDiff> Diff(Scope scope, std::string before, std::string after) = 0;
  // Makes the newest snapshot of a fork that of the sandbox it was forked from, or of `into`. A running fork is stopped
  // for it; a running target is refused: its own stop would undo it.
  virtual Task<store::Sandbox> Promote(Scope scope, std::string fork, std::optional<std::string> into) = 0;
  // Whatever happens, crashes included, no fork of it is left but one that was asked for.
  virtual Task<RaceOutcome> Race(Scope scope, RaceSpec spec) = 0;

  virtual Task<Page<store::Session>> ListSessions(Scope scope, ListQuery query) = 0;
  virtual Task<SandboxView> GetSession(Scope scope, std::string session) = 0;
  virtual Task<SandboxView> Stop(Scope scope, std::string session) = 0;  // blocks until stopped; idempotent
  virtual Task<store::Session> ExtendTimeout(Scope scope, std::string session, int64_t duration_ms) = 0;
  // Replaces the running session's policy; the answer comes when it is in force. What it denies is denied at once.
  virtual Task<store::Session> SetNetwork(Scope scope, std::string session, egress::NetworkPolicy policy) = 0;
  virtual Task<NetworkView> Network(Scope scope, std::string session) = 0;

  virtual Task<StartedCommand> StartCommand(Scope scope, std::string session, CommandSpec spec) = 0;
  virtual Task<store::Command> GetCommand(Scope scope, std::string session, std::string command) = 0;
  virtual Task<store::Command> WaitCommand(Scope scope, std::string session, std::string command) = 0;
  virtual Task<std::vector<store::Command>> ListCommands(Scope scope, std::string session) = 0;
  virtual Task<store::Command> KillCommand(Scope scope, std::string session, std::string command, int signal) = 0;
  virtual Task<std::unique_ptr<LogReader>> OpenLog(Scope scope, std::string session, std::string command) = 0;

  // Code in contexts (code.h), by the sandbox's name. Running code and making a context resume a stopped sandbox; a
  // context that is not there is kNotFound, one that runs something is kConflict.
  virtual Task<std::unique_ptr<CodeStream>> RunCode(Scope scope, std::string name, CodeSpec spec) = 0;
  virtual Task<CodeContextInfo> CreateContext(Scope scope, std::string name, CodeContextSpec spec) = 0;
  virtual Task<std::vector<CodeContextInfo>> ListContexts(Scope scope, std::string name) = 0;
  virtual Task<CodeContextInfo> ChangeContext(Scope scope, std::string name, std::string id, ContextChange change) = 0;

  virtual Task<std::unique_ptr<engine::FileStream>> ReadFile(Scope scope, std::string session, std::string path,
                                                             std::optional<std::string> cwd) = 0;
  virtual Task<> WriteTar(Scope scope, std::string session, std::optional<std::string> cwd,
                          engine::ByteSource* source) = 0;  // gzip'd tar
  virtual Task<> MakeDir(Scope scope, std::string session, std::string path, std::optional<std::string> cwd,
                         bool recursive) = 0;

  // Previews. A name that leads nowhere is kNotFound; a machine that has stopped kStopped or kStopping; a port that
  // nobody listens on kUnavailable. The connection reaches servers on 127.0.0.1 and ::1, whatever the network policy.
  virtual Task<RouteTarget> FindRoute(std::string subdomain) = 0;
  virtual Task<DialledPort> DialPort(Scope scope, std::string session, int port) = 0;
  // Who uses the route has to show this token from now on; nullopt: nobody has to. Only its hash is kept.
  virtual Task<store::PortRoute> SetRouteToken(Scope scope, std::string name, int port,
                                               std::optional<std::string> token) = 0;

  // Tokens. Check hashes the presented value and compares in constant time; kUnauthenticated when unknown.
  virtual Task<store::Token> CheckToken(std::string presented) = 0;
};

}  // namespace sandbar::sandbox
