// The contract between the server and the engines. An Engine boots sandbar-guest in a machine. The server talks to that
// agent over a byte stream, which it can reconnect. Every feature (commands, files, ports) is frames on the stream
// (engine/guest_link/guest_link.h). One class implements Engine for all engines by asking the spawner
// (engine/spawner_client/spawner_engine.h). A new engine is therefore code of the spawner: spawner/machines/launch.h
// has the checklist, base/engine_table.h the facts.
//
//   auto m = co_await engine.Boot(boot);          // rootfs format, network, limits: not named, no image yet
//   co_await m->Configure(rootfs, spec);          // image and spec: the agent runs
//   auto sock = co_await m->Connect();            // speak frames; connect again after a crash
//   auto fd = co_await m->Dial(3000);             // a server that a command started
//   co_await m->Destroy();
//
// engine/machine.h is the Machine, engine/values.h and engine/layers.h are what both take and give.
//
// Single loop: all calls from the daemon's loop thread. Machines survive the daemon (the spawner supervises them);
// after a restart Engine::Attach gives the same Machine back.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "async/task.h"
#include "engine/layers.h"
#include "engine/machine.h"
#include "engine/values.h"

namespace sandbar::engine {

// A call whose time grows with the number of files or bytes names its owner. Each owner gets a share of the workers, so
// the files of one owner do not delay the others. kTooMany: the share is used up; try again later.
class Engine {
 public:
  virtual ~Engine() = default;
  // The engine of a boot request that names none.
  virtual EngineInfo info() const = 0;
  // Every one that is known, usable or not, in the order of classes.
  virtual std::vector<EngineInfo> engines() const = 0;
  // kUnsupported when the engine named is unknown or not usable: never another one in its place.
  virtual Task<std::unique_ptr<Machine>> Boot(BootRequest request) = 0;
  // Machines of this instance that the spawner still holds. Those that are ending are waited for, some seconds at
  // most.
  virtual Task<std::vector<MachineInfo>> List() = 0;
  virtual Task<std::unique_ptr<Machine>> Attach(std::string machine_id) = 0;
  // Every snapshot on disk, in the order of names.
  virtual Task<std::vector<std::string>> ListSnapshots() = 0;
  // Makes one layer that shows what these show (topmost first). Takes as long as there are files; the old ones stay.
  // Idempotent: when `target` exists already, it is taken as done.
  virtual Task<> FlattenSnapshots(std::vector<std::string> layers, std::string target, std::string owner) = 0;
  // Reads the whole layer, writes its manifest, and returns when layer and manifest are on disk. Call it once per
  // layer: a second manifest would certify files that may have changed since the first.
  virtual Task<LayerReport> WriteManifest(std::string snapshot, std::string owner) = 0;
  // Reads the whole layer and compares. kNotFound when layer or manifest is missing.
  virtual Task<LayerReport> CheckManifest(std::string snapshot, std::string owner) = 0;
  virtual Task<LayerDiff> Diff(LayerStack before, LayerStack after, std::string owner) = 0;
  // No machine may run on it. Also removes its memory, and ends the jobs that read it. Not an error when it is gone
  // already.
  virtual Task<> RemoveSnapshot(std::string snapshot) = 0;

  // Drives: directories that outlive machines ([a-zA-Z0-9_-]{1,64}), written by one machine at a time (kConflict), and
  // drive snapshots of them under names of their own. Idempotent; kUnsupported for a limit that would not be enforced.
  virtual Task<> CreateDrive(std::string drive, uint64_t max_bytes, Owner owner) = 0;
  // Makes a drive snapshot: a read-only copy of the drive. No machine may be writing to it. Taken as done when
  // `snapshot` exists.
  virtual Task<> SnapshotDrive(std::string drive, std::string snapshot, std::string owner) = 0;
  // Of a drive or a drive snapshot that no machine uses. Not an error when it is gone already.
  virtual Task<> RemoveDrive(std::string name) = 0;
  // Every drive and drive snapshot on disk, in the order of names.
  virtual Task<std::vector<std::string>> ListDrives() = 0;

  // Converts a directory to a block device. The other direction needs machines, because the host never reads a
  // filesystem that a guest's kernel wrote. The time grows with the number of files. An existing `target` counts as
  // done. kNoSpace when the files do not fit.
  virtual Task<> SnapshotToBlock(std::string layer, std::string target, uint64_t bytes, std::string owner) = 0;
  // Of a drive that no machine writes to, or a drive snapshot; the target has its size.
  virtual Task<> DriveToBlock(std::string source, std::string target, std::string owner) = 0;
  // The format of a drive or a drive snapshot; nothing while it was never used and may become either.
  virtual Task<std::optional<RootfsFormat>> DriveFormat(std::string name) = 0;
  // The drive `by` takes this one's place and name. No machine may use either.
  virtual Task<> ReplaceDrive(std::string drive, std::string by) = 0;

  // The snapshot stays, without its memory. Not an error when it has none.
  virtual Task<> RemoveMemory(std::string snapshot) = 0;
};

}  // namespace sandbar::engine
