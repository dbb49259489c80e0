// The disk as plain directories below <data>/store, for hosts without btrfs: no limit per machine, and nobody is told
// that there is one. Deleting a tree can take long, so it is renamed away, and a process of its own removes it.
#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <optional>

#include "base/ids.h"
#include "base/log.h"
#include "os/mounts.h"
#include "os/openat.h"
#include "os/process.h"
#include "spawner/disk/disk.h"
#include "spawner/disk/drive_dir.h"
#include "spawner/disk/snapshot_dir.h"

namespace sandbar::spawner {
namespace {

constexpr uint64_t kLeastLeft = 32ULL << 20;  // of the disk: less is of no use to a machine

class PlainDisk : public Disk {
 public:
  PlainDisk(std::string path, Fd machines, Fd snapshots, Fd manifests, Fd drives, Fd trash)
      : path_(std::move(path)),
        machines_(std::move(machines)),
        snapshots_(std::in_place, path_ + "/snapshots", std::move(snapshots), std::move(manifests)),
        drives_(std::in_place, path_ + "/drives", std::move(drives)),
        trash_(std::move(trash)) {}
  ~PlainDisk() override {
    snapshots_.reset();
    drives_.reset();
    machines_.Reset();
    trash_.Reset();
    if (auto r = os::Unmount(path_); !r) log::Warn("{}", r.error().message);
  }

  std::string Describe() const override { return "none"; }
  std::string site_path() const override { return path_ + "/site"; }

  Result<DiskSlot> Create() override {
    DiskSlot slot;
    slot.name = NewLabel("w-", 16);
    slot.path = path_ + "/machines/" + slot.name;
    SB_TRY(Fd dir, os::EnsureDir(machines_.get(), slot.name, 0755));
    SB_TRYV(os::EnsureDir(dir.get(), "upper", 0755));
    SB_TRYV(os::EnsureDir(dir.get(), "work", 0755));
    return slot;
  }

  bool copies_snapshots() const override { return false; }
  Result<SlotCopy> BeginStart(const DiskSlot&, const std::string&) const override {
    return Fail(Code::kUnsupported, "plain directories cannot share their contents");
  }
  Result<> Adopt(DiskSlot&, SlotCopy) override {
    return Fail(Code::kUnsupported, "plain directories cannot share their contents");
  }
  // Without quotas nobody's share can be held to anything.
  Result<> CheckSpace(const DiskOwner&, uint64_t wanted) const override {
    struct statvfs vfs{};
    if (::fstatvfs(machines_.get(), &vfs) != 0) return FailErrno("statvfs");
    const uint64_t left = static_cast<uint64_t>(vfs.f_bavail) * vfs.f_frsize;
    if (left >= kLeastLeft + wanted) return {};
    return Fail(Code::kNoSpace, "the server's disk is full: " + std::to_string(left >> 20) +
                                    " MiB left for sandboxes; delete some, or snapshots, and try again");
  }
  Result<> Assign(DiskSlot&, const DiskOwner&) override { return {}; }
  Result<> AssignLike(const std::string&, const std::string&) override { return {}; }
  void Adjust() override {}
  Result<> SetLimit(const DiskSlot&, uint64_t bytes, uint64_t) override {
    if (bytes != 0)
      return Fail(Code::kUnsupported, "this server cannot limit a machine's disk ([disk] limit = \"none\")");
    return {};
  }
  bool limits_own_bytes() const override { return false; }
  Result<uint64_t> Usage(const DiskSlot&) const override { return 0; }
  Result<DiskRoom> Room(const DiskSlot&) const override { return NoRoom(); }

  Result<> Destroy(const DiskSlot& slot) override { return MoveToTrash(machines_.get(), slot.name); }

  Result<> Publish(const DiskSlot& slot, const std::string& snapshot) override {
    SB_TRY(Fd dir, os::OpenInside(machines_.get(), slot.name, O_RDONLY | O_DIRECTORY));
    SB_TRYV(MoveToTrash(dir.get(), "work"));
    return snapshots_->Take(machines_.get(), slot.name, snapshot);
  }
  bool settling(const std::string&) const override { return false; }
  Result<std::string> SnapshotLayer(const std::string& snapshot) const override { return snapshots_->Layer(snapshot); }
  Result<std::vector<std::string>> ListSnapshots(const std::string& after, size_t max) const override {
    return snapshots_->List(after, max);
  }
  Result<> RemoveSnapshot(const std::string& snapshot) override {
    SB_TRYV(MoveToTrash(snapshots_->fd(), snapshot));
    snapshots_->RemoveManifest(snapshot);
    return {};
  }
  Result<Fd> OpenManifest(const std::string& snapshot, bool fresh) const override {
    return snapshots_->OpenManifest(snapshot, fresh);
  }

  Result<Fd> NewMemory(const std::string&, const DiskSlot&) override { return NoCopies(); }
  Result<SlotCopy> BeginCopy(const DiskSlot&) const override { return NoCopies(); }
  Result<> PublishCopy(SlotCopy&, const std::string&) override { return NoCopies(); }
  void DropMemory(const std::string&) override {}
  void DropCopy(const SlotCopy&) override {}
  void RemoveMemory(const std::string&) override {}
  Result<Fd> OpenMemory(const std::string&) const override { return NoCopies(); }

  Result<> CreateDrive(const std::string& drive, uint64_t max_bytes, const DiskOwner&) override {
    SB_TRYV(DriveDir::Check(drive));
    struct statvfs vfs{};
    if (::fstatvfs(drives_->fd(), &vfs) != 0) return FailErrno("statvfs");
    // A limit that is beyond the whole disk is held by the disk.
    if (max_bytes < static_cast<uint64_t>(vfs.f_blocks) * vfs.f_frsize)
      return Fail(Code::kUnsupported, "this server cannot limit a drive's size ([disk] limit = \"none\")");
    SB_TRY(Fd dir, os::EnsureDir(drives_->fd(), drive, 0755));
    return DriveDir::Fill(dir.get());
  }
  Result<std::string> DrivePath(const std::string& name) const override { return drives_->Path(name); }
  Result<DiskRoom> DriveRoom(const std::string&) const override { return NoRoom(); }
  Result<std::vector<std::string>> ListDrives(const std::string& after, size_t max) const override {
    return drives_->List(after, max);
  }
  // A copy: the same at every size needs a filesystem with subvolumes.
  Result<> SnapshotDrive(const std::string& drive, const std::string& snapshot) const override {
    const std::string half = DriveDir::HalfName(snapshot);
    SB_TRYV(os::RemoveTree(drives_->fd(), half));
    SB_TRYV(os::RunProgram({"cp", "-a", "--reflink=auto", path_ + "/drives/" + drive, path_ + "/drives/" + half}));
    if (::syncfs(drives_->fd()) != 0) return FailErrno("sync");
    if (::renameat2(drives_->fd(), half.c_str(), drives_->fd(), snapshot.c_str(), RENAME_NOREPLACE) != 0)
      return FailErrno("publish the snapshot of a drive");
    return {};
  }
  int drives_fd() const override { return drives_->fd(); }
  Result<> RemoveDrive(const std::string& name) override { return MoveToTrash(drives_->fd(), name); }

  Result<> Tidy() const override {
    for (int dir : {trash_.get(), snapshots_->manifests_fd()}) {
      SB_TRY(auto names, os::ListDir(dir));
      for (const auto& name : names) {
        if (dir == trash_.get() || name.starts_with(kGone)) SB_TRYV(os::RemoveTree(dir, name));
      }
    }
    return {};
  }
  std::vector<int> tidy_fds() const override { return {trash_.get(), snapshots_->manifests_fd()}; }
  bool untidy() const override { return trash_full_; }
  bool unsealed() const override { return false; }
  void BeginTidy() override { trash_full_ = false; }
  void EndTidy(bool done) override { trash_full_ = trash_full_ || !done; }
  bool Housekeep() override { return false; }

  Result<> ReplaceDrive(const std::string&, const std::string&) override {
    return Fail(Code::kUnsupported, "only the btrfs store converts drives");
  }
  bool backlog() const override { return false; }
  void MarkTrash() { trash_full_ = true; }

 private:
  static Result<DiskRoom> NoRoom() { return Fail(Code::kUnsupported, "plain directories have no limits"); }
  static std::unexpected<Error> NoCopies() {
    return Fail(Code::kUnsupported, "memory is kept on the btrfs store only (disk_limit = \"btrfs\")");
  }
  Result<> MoveToTrash(int from, const std::string& name) {
    // "work" is a name that many have.
    const std::string gone = NewLabel(name + "-", 8);
    if (::renameat(from, name.c_str(), trash_.get(), gone.c_str()) != 0 && errno != ENOENT)
      return FailErrno("remove a layer");
    trash_full_ = true;
    return {};
  }

  std::string path_;
  Fd machines_;
  std::optional<SnapshotDir> snapshots_;
  std::optional<DriveDir> drives_;
  Fd trash_;
  bool trash_full_ = false;
};

}  // namespace

Result<std::unique_ptr<Disk>> OpenPlainDisk(const DiskOptions& options) {
  SB_TRY(Fd store, os::EnsureDir(options.data, "store", 0700));
  SB_TRY(Fd copy, os::CloneTree(store.get(), ""));
  SB_TRYV(os::SetMountAttributes(copy.get(), MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC));
  SB_TRYV(os::Attach(copy.get(), AT_FDCWD, options.mount_point));
  SB_TRY(Fd root, os::OpenPath(options.mount_point, O_RDONLY | O_DIRECTORY));
  SB_TRY(Fd machines, os::EnsureDir(root.get(), "machines", 0700));
  SB_TRY(Fd snapshots, os::EnsureDir(root.get(), "snapshots", 0700));
  SB_TRY(Fd drives, os::EnsureDir(root.get(), "drives", 0700));
  SB_TRY(Fd manifests, os::EnsureDir(root.get(), "manifests", 0700));
  SB_TRY(Fd trash, os::EnsureDir(root.get(), "trash", 0700));
  SB_TRY(auto names, os::ListDir(machines.get()));
  for (const auto& name : names) {
    if (::renameat(machines.get(), name.c_str(), trash.get(), name.c_str()) != 0) return FailErrno("move leftovers");
  }
  SB_TRYV(os::RemoveTree(root.get(), "site"));
  SB_TRYV(os::EnsureDir(root.get(), "site", 0700));
  auto disk = std::make_unique<PlainDisk>(options.mount_point, std::move(machines), std::move(snapshots),
                                          std::move(manifests), std::move(drives), std::move(trash));
  disk->MarkTrash();
  return disk;
}

}  // namespace sandbar::spawner
