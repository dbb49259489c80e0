// The role Sandboxes: records that are created, changed, forked, paused, resumed and deleted by name. Single loop.
// Every call takes the caller's Scope; a sandbox of another project answers as unknown. An answered call is durable:
// its rows were written before it returned.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "async/task.h"
#include "egress/policy.h"
#include "sandbox/sandboxes/sandbox_view.h"
#include "sandbox/sandboxes/source.h"
#include "sandbox/scope.h"
#include "store/records.h"

namespace sandbar::sandbox {

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
  std::string digest;  // of the request, so that the API recognises a repeated one
};

// An absent field leaves the record unchanged. For doubly optional fields an inner nullopt clears the value.
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
  store::IsolationDemand isolation;                           // raises the demand of the sandbox
  std::optional<std::string> current_snapshot;                // roll back (or forward) to this one
};

// A copy of a sandbox's record and of its newest snapshot, with changes.
struct ForkSpec {
  std::optional<std::string> name;
  bool live = false;  // copy the running machine with its processes instead of the newest snapshot
  UpdateSpec changes;
};

// Where a stopped sandbox continues. kEither takes the memory when the stop kept it, and the files alone when this
// server cannot use the memory and nobody had asked for it.
enum class ResumeFrom { kEither, kMemory, kDisk };

// The server deletes a stopped sandbox that has this tag with the value "1", after the sandbox's own time limit, unless
// it has a snapshot.
inline constexpr char kDisposableTag[] = "sandbar.disposable";

class Sandboxes {
 public:
  virtual ~Sandboxes() = default;

  // kNameTaken when the name exists. kUnsupported when no engine of this server meets the demanded isolation; every
  // later start of the sandbox and of its forks answers the same.
  virtual Task<SandboxView> Create(Scope scope, CreateSpec spec) = 0;
  virtual Task<SandboxView> Get(Scope scope, std::string name, bool resume) = 0;
  virtual Task<Page<store::Sandbox>> List(Scope scope, ListQuery query) = 0;
  virtual Task<store::Sandbox> Update(Scope scope, std::string name, UpdateSpec spec) = 0;
  // Keeps snapshots that were made by hand. With `orphan_snapshots` it also deletes those that no other sandbox uses.
  virtual Task<store::Sandbox> Delete(Scope scope, std::string name, bool orphan_snapshots) = 0;
  // The fork boots from the source's current snapshot, or from its image when there is none. A live fork continues
  // where the source's machine is, with all its processes (kUnsupported where the engine cannot do that).
  virtual Task<SandboxView> Fork(Scope scope, std::string name, ForkSpec spec) = 0;

  // Stops the session and keeps its memory, so that Resume continues its processes. kUnsupported where the engine
  // cannot.
  virtual Task<SandboxView> Pause(Scope scope, std::string name) = 0;
  // Returns the running session, or starts a new one. kConflict when it cannot continue from the demanded source.
  virtual Task<SandboxView> Resume(Scope scope, std::string name, ResumeFrom from) = 0;

  // Events of a sandbox that no answer could report, such as a damaged snapshot. Of the whole project when `name` is
  // empty.
  virtual Task<std::vector<store::Notice>> Notices(Scope scope, std::string name) = 0;
  // Per project, up to now, running sessions included.
  virtual Task<std::vector<store::ProjectUsage>> Usage(Scope scope) = 0;
};

}  // namespace sandbar::sandbox
