// The root filesystem of a machine that uses the host's filesystems: an overlay of image layers, site layers and
// snapshots with the machine's disk slot on top, everything id-mapped, and its drives. It also knows when the kernel
// has unmounted them. One per machine, made by the launches that need it. Single thread.
//
//   RootDir root(host);
//   SB_TRYV(root.Mount(resources, request));
//   SB_TRYV(root.MountDrives(resources, request));
//   … root.root(), root.drives(): detached mounts, for a process to attach …
//   root.Detach();                  // when that process has them
//   … the machine ended; root.RootGone() …
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "spawner/host_resources.h"
#include "spawner/machines/launch.h"
#include "spawner/machines/resources.h"
#include "spawner/protocol.h"

namespace sandbar::spawner {

// A path of the spawner's private mount tree.
std::string InMountDir(const char* name);
std::string HostnameOf(const ConfigureReq& request);

struct MountedDrive {
  Fd mount;
  std::string path;
};

class RootDir {
 public:
  explicit RootDir(HostResources* host) : host_(host) {}
  ~RootDir();
  RootDir(const RootDir&) = delete;
  RootDir& operator=(const RootDir&) = delete;

  // Mounts everything but the drives, and makes their mount points. `bottom`: a directory of the host below all other
  // layers, whose ids are not mapped; empty: none.
  Result<> Mount(const MachineResources& resources, const ConfigureReq& request, const std::string& bottom = "");
  // Call it last, when nothing that a guest chose can fail any more: unmounting a drive waits until the disk has all of
  // its bytes.
  Result<> MountDrives(const MachineResources& resources, const ConfigureReq& request);
  // A directory of the machine's root as its disk has it, without the overlay in between: an overlay cannot stand on
  // another one, and containers' filesystems are overlays. Part of snapshots like everything on the disk. Detached.
  Result<Fd> MountPlain(const MachineResources& resources, const std::string& path);
  int root() const { return root_.get(); }
  const std::vector<MountedDrive>& drives() const { return drives_; }
  // The machine's process has the mounts now: closes them here.
  void Detach();
  // Closes the copies of the layers' mounts. That costs more than making them, so do it when nobody waits.
  void DropLayers() { layer_mounts_.clear(); }
  bool RootGone();
  bool DrivesGone();

 private:
  Result<Fd> MountRoot(const MachineResources& resources, const std::vector<std::string>& layers,
                       const std::string& bottom);
  Result<> CheckDrive(const MachineResources& resources, const DriveMount& mount) const;
  Result<Fd> MountDrive(const MachineResources& resources, const DriveMount& mount);

  HostResources* host_;
  std::shared_ptr<SiteDir> host_layer_;  // shared with the other machines of this host name
  std::vector<Fd> layer_mounts_;         // detached copies
  Fd root_;
  std::vector<MountedDrive> drives_;
  std::optional<int> root_watch_;  // tells when the root filesystem is really unmounted
  std::vector<int> drive_watches_;
};

// What the launches with a RootDir share.
class RootDirLaunch : public Launch {
 public:
  void LetGo() override {
    if (!root_) return;
    root_->Detach();
    root_->DropLayers();
  }
  bool DrivesReleased() override { return !root_ || root_->DrivesGone(); }
  bool RootReleased() override { return !root_ || root_->RootGone(); }

 protected:
  std::unique_ptr<RootDir> root_;
};

}  // namespace sandbar::spawner
