// The role Snapshots: the files of a stopped session, as a thing that sandboxes boot from. Single loop. Every call
// takes the caller's Scope; a snapshot of another project answers as unknown.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "async/task.h"
#include "engine/layers.h"
#include "sandbox/scope.h"
#include "store/records.h"

namespace sandbar::sandbox {

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
  std::string next;                     // the snapshot that the next page starts from; empty: the end
};

class Snapshots {
 public:
  virtual ~Snapshots() = default;
  // Stops the session as part of it.
  virtual Task<SnapshotTaken> Take(Scope scope, std::string session, std::optional<int64_t> expiration_ms) = 0;
  virtual Task<Page<store::Snapshot>> List(Scope scope, ListQuery query) = 0;
  virtual Task<store::Snapshot> Get(Scope scope, std::string id) = 0;
  virtual Task<store::Snapshot> Delete(Scope scope, std::string id) = 0;
  // Ancestors, or descendants along the first children.
  virtual Task<SnapshotTree> Tree(Scope scope, std::string id, int limit, bool descendants) = 0;
  // Reads all files and compares them with the snapshot's manifests. `damage` of the answer lists the differences.
  virtual Task<store::Snapshot> Verify(Scope scope, std::string id) = 0;
  // Compares two snapshots, each given by its id or by the name of a sandbox (its newest one). An empty `before` means
  // the image.
  virtual Task<engine::LayerDiff> Diff(Scope scope, std::string before, std::string after) = 0;
};

}  // namespace sandbar::sandbox
