// Snapshots and drives in the format that a machine needs: files in a directory, or a block device. The other form is
// made when it is first needed, under a name of its own, and kept as long as the original.
//
// From a directory the host makes the device. The other way leads through two machines that are made for this and
// thrown away: one of class 3 mounts the device and packs what is in it, one of class 1 unpacks that into its own root,
// as it would any archive. Nothing of the host ever looks at what goes from one to the other. Single loop.
//
//   SB_CO_TRY(auto layers, co_await converter.Layers(snapshot, engine::RootfsFormat::kDir));
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "async/task.h"
#include "engine/engine.h"
#include "sandbox/core.h"
#include "sandbox/sessions/connected_machine.h"
#include "sandbox/shared_result.h"
#include "store/records.h"

namespace sandbar::sandbox {

// What a layer or a state is called in the other format.
std::string ConvertedName(const std::string& name, engine::RootfsFormat format);
// The reverse; empty for a name that is an original's.
std::string OriginalName(const std::string& name);
// A drive that is to take its original's place.
std::string SuccessorName(const std::string& drive);

engine::RootfsFormat FormatOf(const store::Snapshot& snapshot);
// The layers below a machine that needs this format.
std::vector<std::string> LayersIn(const std::vector<std::string>& layers, engine::RootfsFormat have,
                                  engine::RootfsFormat need);

class Converter {
 public:
  explicit Converter(Core* core) : core_(core), freed_(core->ex), tasks_(core->ex) {}

  // LayersIn, and they are there. kConflict, naming both formats, when that cannot be.
  Task<std::vector<std::string>> Layers(store::Snapshot snapshot, engine::RootfsFormat format);
  // The drives and states of a session in the format of its engine, in `rootfs`. The session holds them already.
  Task<> Drives(store::Session session, engine::Rootfs* rootfs);
  asio::awaitable<void> Close() { return tasks_.Close(); }

 private:
  // Whoever asks for the same meanwhile waits for this one; it goes on when whoever asked has gone.
  Task<> Once(std::string target, Task<> work);
  Task<> Forget(std::string target, Task<> work);
  Task<> SnapshotToBlock(store::Snapshot snapshot, std::string target);
  Task<> SnapshotToDir(store::Snapshot snapshot, std::string target);
  Task<> Drive(store::Session session, engine::DriveMount mount, engine::RootfsFormat format, std::string target);
  Task<> DriveToDir(store::Session session, engine::DriveMount mount, std::string target);

  Task<std::unique_ptr<ConnectedMachine>> Boot(engine::RootfsFormat format, engine::Rootfs rootfs, engine::Owner owner);
  // `owner`: whose disk budget the machines and what stays of them count for.
  // Carries what is at `where` from a machine that reads devices to one with directories, which may stay as a snapshot.
  Task<> Through(engine::Rootfs from, engine::Rootfs to, std::string where, std::string keep_as, engine::Owner owner);
  Task<> Fill(ConnectedMachine* source, engine::Rootfs to, std::string where, std::string keep_as, engine::Owner owner);
  Task<> Carry(ConnectedMachine* from, ConnectedMachine* to, std::string where);
  Task<> End(std::unique_ptr<ConnectedMachine> machine, std::string keep_as);

  Core* core_;
  std::map<std::string, std::shared_ptr<SharedResult<void>>> converting_;
  int busy_ = 0;
  Event freed_;
  TaskGroup tasks_;
};

}  // namespace sandbar::sandbox
