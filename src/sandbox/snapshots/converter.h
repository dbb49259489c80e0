// Converts snapshots and drives to the format that a machine needs: files in a directory, or a block device. The
// converted copy is made when it is first needed, has a name of its own, and is kept as long as the original.
//
// The host itself makes a device from a directory. The other direction takes two temporary machines: one of class 3
// mounts the device and packs its files, one of class 1 unpacks the archive into its own root. No process of the host
// reads what goes from one machine to the other. Single loop.
//
//   SB_CO_TRY(auto layers, co_await converter.Layers(snapshot, engine::RootfsFormat::kDir));
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "async/task.h"
#include "engine/values.h"
#include "sandbox/core.h"
#include "sandbox/sessions/connected_machine.h"
#include "sandbox/shared_result.h"
#include "store/records.h"

namespace sandbar::sandbox {

// The name of a layer or drive snapshot in the other format.
std::string ConvertedName(const std::string& name, engine::RootfsFormat format);
// The reverse; empty when the name is that of an original.
std::string OriginalName(const std::string& name);
// The name of a converted drive that will replace its original.
std::string SuccessorName(const std::string& drive);

engine::RootfsFormat FormatOf(const store::Snapshot& snapshot);
// The layers below a machine that needs this format.
std::vector<std::string> LayersIn(const std::vector<std::string>& layers, engine::RootfsFormat have,
                                  engine::RootfsFormat need);

class Converter {
 public:
  explicit Converter(Core* core) : core_(core), freed_(core->ex), tasks_(core->ex) {}

  // LayersIn, after converting what is missing. kConflict, with both formats, when the conversion fails.
  Task<std::vector<std::string>> Layers(store::Snapshot snapshot, engine::RootfsFormat format);
  // Puts the drives of a session into `rootfs`, in the format of its engine. The session holds them already.
  Task<> Drives(store::Session session, engine::Rootfs* rootfs);
  asio::awaitable<void> Close() { return tasks_.Close(); }

 private:
  // Callers that ask for the same target meanwhile share one conversion. It goes on when its caller has gone.
  Task<> Once(std::string target, Task<> work);
  Task<> Forget(std::string target, Task<> work);
  Task<> SnapshotToBlock(store::Snapshot snapshot, std::string target);
  Task<> SnapshotToDir(store::Snapshot snapshot, std::string target);
  Task<> Drive(store::Session session, engine::DriveMount mount, engine::RootfsFormat format, std::string target);
  Task<> DriveToDir(store::Session session, engine::DriveMount mount, std::string target);

  Task<std::unique_ptr<ConnectedMachine>> Boot(engine::RootfsFormat format, engine::Rootfs rootfs, engine::Owner owner);
  // Copies the files at `where` from a machine that reads devices to one with directories. The second machine stays as
  // the snapshot `keep_as` when that is not empty. The disk space counts for `owner`.
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
