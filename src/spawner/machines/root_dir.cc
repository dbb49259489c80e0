#include "spawner/machines/root_dir.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <span>

#include "os/mounts.h"
#include "os/openat.h"
#include "os/overlay.h"
#include "spawner/disk/drive_dir.h"
#include "spawner/disk/vm_disk.h"

namespace sandbar::spawner {

std::string InMountDir(const char* name) {
  return std::string(kMountDir) + "/" + name;
}

std::string HostnameOf(const ConfigureReq& request) {
  return request.hostname.empty() ? kDefaultHostname : request.hostname;
}

RootDir::~RootDir() {
  if (root_watch_) host_->unmounts->Forget(*root_watch_);
  for (int watch : drive_watches_) host_->unmounts->Forget(watch);
}

Result<> RootDir::Mount(const MachineResources& resources, const ConfigureReq& request, const std::string& bottom) {
  SB_TRY(auto layers, host_->layers->Prepare(request.layers, request.image_digest, HostnameOf(request)));
  host_layer_ = layers.host;
  std::span<const std::string> below = request.snapshots;
  // The machine's own layer began as a copy of the topmost one (MachineDisk::Adopt).
  if (!below.empty() && host_->disk->copies_snapshots()) below = below.subspan(1);
  std::vector<std::string> stack;
  for (const std::string& snapshot : below) {
    SB_TRY(std::string layer, host_->disk->SnapshotLayer(snapshot));
    SB_TRYV(CheckFormat(snapshot, layer, false));
    stack.push_back(std::move(layer));
  }
  stack.insert(stack.end(), layers.paths.begin(), layers.paths.end());
  SB_TRY(root_, MountRoot(resources, stack, bottom));
  SB_TRY(root_watch_, host_->unmounts->Watch(root_.get()));
  for (const DriveMount& mount : request.mounts) SB_TRYV(CheckDrive(resources, mount));
  return {};
}

Result<> RootDir::MountDrives(const MachineResources& resources, const ConfigureReq& request) {
  for (const DriveMount& mount : request.mounts) {
    SB_TRY(Fd drive, MountDrive(resources, mount));
    drives_.push_back({std::move(drive), mount.path});
  }
  return {};
}

Result<Fd> RootDir::MountRoot(const MachineResources& resources, const std::vector<std::string>& layers,
                              const std::string& bottom) {
  os::OverlaySpec spec;
  for (const auto& path : layers) {
    SB_TRY(Fd layer, os::CloneTree(AT_FDCWD, path));
    SB_TRYV(os::MapIds(layer.get(), resources.identity.userns.get()));
    spec.layers.push_back(layer.get());
    layer_mounts_.push_back(std::move(layer));
  }
  if (!bottom.empty()) {
    SB_TRY(Fd layer, os::CloneTree(AT_FDCWD, bottom));
    spec.layers.push_back(layer.get());
    layer_mounts_.push_back(std::move(layer));
  }
  SB_TRY(Fd writable, os::CloneTree(AT_FDCWD, resources.disk.path));
  SB_TRYV(os::MapIds(writable.get(), resources.identity.userns.get()));
  spec.writable = writable.get();
  layer_mounts_.push_back(std::move(writable));
  spec.owner = resources.identity.lease.base();
  spec.scratch = InMountDir("m");
  spec.force_paths = host_->options.force_fallback.contains("overlay");
  auto root = os::MountOverlay(spec);
  // The kernel does not say why it gives a read-only one; what a full disk refuses, it refuses us too.
  const std::string probe = resources.disk.path + "/probe";
  if (!root && ::mkdir(probe.c_str(), 0700) != 0 && (errno == ENOSPC || errno == EDQUOT)) return FailErrno("overlay");
  if (!root) ::rmdir(probe.c_str());
  return root;
}

Result<> RootDir::CheckDrive(const MachineResources& resources, const DriveMount& mount) const {
  if (!mount.path.starts_with('/') || mount.path.size() < 2) return Fail(Code::kBadRequest, "bad mount path");
  SB_TRY(std::string path, host_->disk->DrivePath(mount.drive));
  if (IsBlockFormat(path + "/upper"))
    return Fail(Code::kConflict, "drive " + mount.drive + " has the format block, and dir is needed here");
  if (mount.writable) SB_TRYV(DriveDir::Claim(path, mount.uid, mount.gid));
  return os::MakePathInside(root_.get(), mount.path, resources.identity.lease.base());
}

Result<Fd> RootDir::MountDrive(const MachineResources& resources, const DriveMount& mount) {
  SB_TRY(std::string path, host_->disk->DrivePath(mount.drive));
  os::OverlaySpec spec;
  // Below it there is nothing: an overlay for the sake of being one.
  SB_TRY(Fd nothing, os::CloneTree(AT_FDCWD, InMountDir("nothing")));
  SB_TRY(Fd drive, os::CloneTree(AT_FDCWD, mount.writable ? path : path + "/upper"));
  SB_TRYV(os::MapIds(drive.get(), resources.identity.userns.get()));
  if (mount.writable) spec.writable = drive.get();
  if (!mount.writable) spec.layers.push_back(drive.get());
  spec.layers.push_back(nothing.get());
  spec.durable = true;
  spec.owner = resources.identity.lease.base();
  spec.scratch = InMountDir("m");
  spec.force_paths = host_->options.force_fallback.contains("overlay");
  SB_TRY(Fd overlay, os::MountOverlay(spec));
  const uint64_t read_only = mount.writable ? 0 : MOUNT_ATTR_RDONLY;
  SB_TRYV(os::SetMountAttributes(overlay.get(), MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | read_only));
  SB_TRY(int watch, host_->unmounts->Watch(overlay.get()));
  drive_watches_.push_back(watch);
  return overlay;
}

Result<Fd> RootDir::MountPlain(const MachineResources& resources, const std::string& path) {
  SB_TRYV(os::MakePathInside(root_.get(), path, resources.identity.lease.base(), true));
  SB_TRY(Fd slot, os::OpenPath(resources.disk.path, O_PATH | O_DIRECTORY));
  SB_TRY(Fd dir, os::OpenInside(slot.get(), "upper" + path, O_PATH | O_DIRECTORY));
  SB_TRY(Fd plain, os::CloneTree(dir.get(), ""));
  SB_TRYV(os::MapIds(plain.get(), resources.identity.userns.get()));
  SB_TRYV(os::SetMountAttributes(plain.get(), MOUNT_ATTR_NODEV, MOUNT_ATTR_NOEXEC | MOUNT_ATTR_NOSUID));
  return plain;
}

void RootDir::Detach() {
  root_.Reset();
  drives_.clear();
}

bool RootDir::RootGone() {
  return !root_watch_ || host_->unmounts->Gone(*root_watch_);
}

bool RootDir::DrivesGone() {
  return std::ranges::all_of(drive_watches_, [this](int watch) { return host_->unmounts->Gone(watch); });
}

}  // namespace sandbar::spawner
