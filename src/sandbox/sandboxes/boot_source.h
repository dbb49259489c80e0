// What a session boots from: an image, or a snapshot with the image below it. Session and snapshot rows carry the same
// fields of the image (user, home, cwd, uid, gid, env, layers); they are copied here and nowhere else.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "images/images.h"
#include "sandbox/core.h"
#include "sandbox/records.h"
#include "sandbox/sandboxes/sandboxes.h"
#include "sandbox/snapshots/disk_limits.h"
#include "sandbox/snapshots/layer_keeper.h"

namespace sandbar::sandbox {

struct BootSource {
  images::Image image;
  std::vector<std::string> snapshot_layers;
  std::string snapshot;
  std::optional<engine::RootfsFormat> format;  // of the snapshot
};

BootSource SourceOf(const store::Snapshot& snapshot);
// The image of a session that runs, without the snapshot below it.
BootSource SourceOf(const store::Session& session);
// The session boots from `source` in a machine that takes `format`.
void SetSource(const BootSource& source, engine::RootfsFormat format, store::Session& session);
// A snapshot of the session has the same image.
void CopyImage(const store::Session& session, store::Snapshot& snapshot);

// Finds what callers name. Single loop; owned by the domain.
class BootSources {
 public:
  BootSources(Core* core, Records* records, LayerKeeper* layers, DiskLimits* disk)
      : core_(core), records_(records), layers_(layers), disk_(disk) {}

  // The snapshot, image or runtime that the request names, or the default.
  Task<BootSource> Find(const CreateSpec* spec, Scope scope);
  Task<images::Image> FindImage(bool v1, std::optional<std::string> image, std::optional<std::string> runtime);
  // kSnapshotGone when the snapshot is unknown, foreign, deleted or expired: there is nothing to boot from.
  Task<store::Snapshot> FindSnapshot(Scope scope, std::string id);
  // The same for a new sandbox: kBadRequest when the snapshot is larger than a sandbox's disk limit.
  Task<BootSource> FindFitting(Scope scope, std::string snapshot);

 private:
  Core* core_;
  Records* records_;
  LayerKeeper* layers_;
  DiskLimits* disk_;
};

}  // namespace sandbar::sandbox
