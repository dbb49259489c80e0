// The disk on the btrfs filesystem of store_image.h: every machine, snapshot and drive is a subvolume. Snapshots, their
// memory and drives outlive the spawner. At start the subvolumes of machines are leftovers, and are removed.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "base/ids.h"
#include "base/log.h"
#include "os/btrfs.h"
#include "os/mounts.h"
#include "os/openat.h"
#include "spawner/disk/disk.h"
#include "spawner/disk/drive_dir.h"
#include "spawner/disk/memory_dir.h"
#include "spawner/disk/snapshot_dir.h"
#include "spawner/disk/store_groups.h"
#include "spawner/disk/store_image.h"
#include "spawner/disk/vm_disk.h"

namespace sandbar::spawner {
namespace {

// What a machine on a snapshot that fills its limit may still write: enough to start and to delete.
constexpr uint64_t kLeastGrowth = 8ULL << 20, kLeastToDelete = 1ULL << 20;

class BtrfsDisk : public Disk {
 public:
  BtrfsDisk(std::string path, StoreMount store, Fd machines, Fd snapshots, Fd manifests, Fd drives, Fd memory)
      : path_(std::move(path)),
        root_(std::move(store.root)),
        groups_(root_.get(), std::move(store.image), store.quota),
        machines_(std::move(machines)),
        snapshots_(std::in_place, path_ + "/snapshots", std::move(snapshots), std::move(manifests)),
        drives_(std::in_place, path_ + "/drives", std::move(drives)),
        memory_(std::move(memory), &groups_) {}
  Result<> Start() { return groups_.Start(); }
  ~BtrfsDisk() override {
    snapshots_.reset();
    drives_.reset();
    machines_.Reset();
    memory_.Close();
    root_.Reset();
    if (auto r = os::Unmount(path_); !r) log::Warn("{}", r.error().message);
  }

  std::string Describe() const override {
    return groups_.mode() == os::QuotaMode::kSimple ? "btrfs (simple quotas)" : "btrfs (quota groups)";
  }
  std::string site_path() const override { return path_ + "/site"; }

  Result<DiskSlot> Create() override {
    DiskSlot slot;
    slot.name = NewLabel("w-", 16);
    slot.path = path_ + "/machines/" + slot.name;
    SB_TRY(slot.id, os::CreateSubvolume(machines_.get(), slot.name));
    auto made = Fill(slot);
    if (!made) {
      if (auto r = os::DestroySubvolume(machines_.get(), slot.name); !r) log::Warn("{}", r.error().message);
      return std::unexpected(std::move(made).error());
    }
    return slot;
  }
  Result<> CheckSpace(const DiskOwner& owner, uint64_t wanted) const override {
    return groups_.CheckSpace(owner, wanted);
  }
  Result<> Assign(DiskSlot& slot, const DiskOwner& owner) override {
    SB_TRY(slot.group, groups_.Join(slot.id, owner));
    return {};
  }
  Result<> AssignLike(const std::string& path, const std::string& like) override {
    SB_TRY(uint64_t id, IdOf(path));
    SB_TRY(uint64_t other, IdOf(like));
    return groups_.JoinLike(id, other);
  }
  void Adjust() override { groups_.Adjust(); }

  // One subvolume for all that a sandbox ever wrote, not a stack of them: each numbers its files from the same start,
  // and overlay tells files of one filesystem apart by these numbers alone.
  bool copies_snapshots() const override { return true; }
  Result<SlotCopy> BeginStart(const DiskSlot& slot, const std::string& snapshot) const override {
    SB_TRYV(snapshots_->Layer(snapshot));
    SlotCopy copy = NewCopy(slot);
    SB_TRY(copy.source, os::OpenInside(snapshots_->fd(), snapshot, O_RDONLY | O_DIRECTORY));
    SB_TRY(copy.parent, os::OpenInside(root_.get(), "machines", O_RDONLY | O_DIRECTORY));
    return copy;
  }
  Result<> Adopt(DiskSlot& slot, SlotCopy copy) override {
    SB_TRY(Fd dir, os::OpenInside(machines_.get(), copy.slot.name, O_RDONLY | O_DIRECTORY));
    SB_TRY(copy.slot.id, os::SubvolumeId(dir.get()));
    if (auto r = Destroy(slot); !r) log::Warn("{}", r.error().message);
    slot = std::move(copy.slot);
    return {};
  }

  Result<> SetLimit(const DiskSlot& slot, uint64_t bytes, uint64_t inherited) override {
    // Simple quotas count what the copy writes, full ones also what it shares.
    return os::SetSubvolumeLimit(root_.get(), slot.id, limits_own_bytes() ? OwnLimit(bytes, inherited) : bytes);
  }
  bool limits_own_bytes() const override { return groups_.mode() == os::QuotaMode::kSimple; }
  Result<uint64_t> Usage(const DiskSlot& slot) const override { return os::SubvolumeUsage(root_.get(), slot.id); }
  Result<DiskRoom> Room(const DiskSlot& slot) const override { return groups_.Room(slot.id, slot.group); }

  Result<> Destroy(const DiskSlot& slot) override {
    SB_TRYV(Remove(machines_.get(), slot.name));
    groups_.Gone(slot.id);
    return {};
  }

  Result<> Publish(const DiskSlot& slot, const std::string& snapshot) override {
    // The rename is the moment from which it exists; what follows only protects it, and is done again at start.
    SB_TRYV(snapshots_->Take(machines_.get(), slot.name, snapshot));
    if (auto r = os::SetSubvolumeLimit(root_.get(), slot.id, 0); !r) log::Warn("{}", r.error().message);
    unsealed_.insert(snapshot);
    return {};
  }
  bool settling(const std::string& snapshot) const override {
    return unsealed_.contains(snapshot) || sealing_.contains(snapshot);
  }
  Result<std::string> SnapshotLayer(const std::string& snapshot) const override { return snapshots_->Layer(snapshot); }
  Result<std::vector<std::string>> ListSnapshots(const std::string& after, size_t max) const override {
    return snapshots_->List(after, max);
  }
  Result<> RemoveSnapshot(const std::string& snapshot) override {
    SB_TRY(Fd dir, os::OpenInside(snapshots_->fd(), snapshot, O_RDONLY | O_DIRECTORY));
    SB_TRY(uint64_t id, os::SubvolumeId(dir.get()));
    dir.Reset();
    SB_TRYV(Remove(snapshots_->fd(), snapshot));
    unsealed_.erase(snapshot);
    groups_.Gone(id);
    snapshots_->RemoveManifest(snapshot);
    RemoveMemory(snapshot);
    return {};
  }
  Result<Fd> NewMemory(const std::string& snapshot, const DiskSlot& slot) override {
    if (snapshots_->Layer(snapshot)) return Fail(Code::kConflict, "snapshot " + snapshot + " exists already");
    auto file = memory_.Create(snapshot, slot);
    untidy_ = untidy_ || !file;
    return file;
  }
  Result<SlotCopy> BeginCopy(const DiskSlot& slot) const override {
    SlotCopy copy = NewCopy(slot);
    SB_TRY(copy.source, os::OpenInside(machines_.get(), slot.name, O_RDONLY | O_DIRECTORY));
    SB_TRY(copy.parent, os::OpenInside(root_.get(), "machines", O_RDONLY | O_DIRECTORY));
    return copy;
  }
  Result<> PublishCopy(SlotCopy& copy, const std::string& snapshot) override {
    SB_TRY(Fd dir, os::OpenInside(machines_.get(), copy.slot.name, O_RDONLY | O_DIRECTORY));
    SB_TRY(copy.slot.id, os::SubvolumeId(dir.get()));
    dir.Reset();
    // The memory first: a snapshot of this kind never exists without it.
    SB_TRYV(memory_.Publish(snapshot));
    auto published = Publish(copy.slot, snapshot);
    if (!published) RemoveMemory(snapshot);
    if (published) copy = {};
    return published;
  }
  void DropMemory(const std::string& snapshot) override {
    memory_.Drop(snapshot);
    untidy_ = true;
  }
  void DropCopy(const SlotCopy& copy) override {
    if (copy.slot.name.empty()) return;
    auto there = os::OpenInside(machines_.get(), copy.slot.name, O_RDONLY | O_DIRECTORY);
    if (!there) return;
    DiskSlot slot = copy.slot;
    if (auto id = os::SubvolumeId(there->get())) slot.id = *id;
    if (auto r = Destroy(slot); !r) log::Warn("{}", r.error().message);
  }
  Result<Fd> OpenMemory(const std::string& snapshot) const override { return memory_.Open(snapshot); }
  void RemoveMemory(const std::string& snapshot) override {
    memory_.Remove(snapshot);
    untidy_ = true;
  }
  Result<Fd> OpenManifest(const std::string& snapshot, bool fresh) const override {
    return snapshots_->OpenManifest(snapshot, fresh);
  }
  // At start: what a predecessor has not come to.
  Result<> Resettle() {
    auto names = snapshots_->List("", SIZE_MAX);
    for (const auto& name : names ? *names : std::vector<std::string>{}) {
      SB_TRY(Fd dir, os::OpenInside(snapshots_->fd(), name, O_RDONLY | O_DIRECTORY));
      if (!Sealed(name)) unsealed_.insert(name);
      CountForAll(dir.get());
    }
    auto drives = drives_->List("", SIZE_MAX);
    for (const auto& name : drives ? *drives : std::vector<std::string>{}) {
      if (auto dir = os::OpenInside(drives_->fd(), name, O_RDONLY | O_DIRECTORY)) CountForAll(dir->get());
    }
    SB_TRY(auto slots, os::ListDir(machines_.get()));
    for (const auto& name : slots) {
      if (auto dir = os::OpenInside(machines_.get(), name, O_RDONLY | O_DIRECTORY)) {
        if (auto id = os::SubvolumeId(dir->get())) groups_.Gone(*id);
      }
      SB_TRYV(Remove(machines_.get(), name));
    }
    // Memory whose snapshot never came to be.
    memory_.Sweep([this](const std::string& name) { return snapshots_->Layer(name).has_value(); });
    untidy_ = true;
    return {};
  }

  Result<> CreateDrive(const std::string& drive, uint64_t max_bytes, const DiskOwner& owner) override {
    SB_TRYV(DriveDir::Check(drive));
    if (!drives_->Path(drive)) SB_TRYV(os::CreateSubvolume(drives_->fd(), drive));
    SB_TRY(Fd dir, os::OpenInside(drives_->fd(), drive, O_RDONLY | O_DIRECTORY));
    SB_TRYV(DriveDir::Fill(dir.get()));
    SB_TRYV(DriveDir::SetSize(dir.get(), max_bytes));
    SB_TRY(uint64_t id, os::SubvolumeId(dir.get()));
    if (owner.project != 0) SB_TRYV(groups_.Join(id, owner));
    const bool block = IsBlockFormat(path_ + "/drives/" + drive + "/upper");
    return os::SetSubvolumeLimit(root_.get(), id, block ? VmSlotLimit(max_bytes) : max_bytes);
  }
  Result<std::string> DrivePath(const std::string& name) const override { return drives_->Path(name); }
  Result<DiskRoom> DriveRoom(const std::string& drive) const override {
    SB_TRY(Fd dir, os::OpenInside(drives_->fd(), drive, O_RDONLY | O_DIRECTORY));
    SB_TRY(uint64_t id, os::SubvolumeId(dir.get()));
    SB_TRY(auto above, os::QuotaGroupsAbove(root_.get(), id));
    return groups_.Room(id, above.empty() ? 0 : above.front());
  }
  Result<std::vector<std::string>> ListDrives(const std::string& after, size_t max) const override {
    return drives_->List(after, max);
  }
  Result<> SnapshotDrive(const std::string& drive, const std::string& snapshot) const override {
    SB_TRY(Fd dir, os::OpenInside(drives_->fd(), drive, O_RDONLY | O_DIRECTORY));
    SB_TRY(uint64_t id, os::SubvolumeId(dir.get()));
    const uint64_t group = StoreGroups::GroupForCopy(drives_->fd(), id, groups_.mode());
    return os::SnapshotSubvolume(dir.get(), drives_->fd(), snapshot, false, group);
  }
  int drives_fd() const override { return drives_->fd(); }
  Result<> ReplaceDrive(const std::string& drive, const std::string& by) override {
    SB_TRY(std::string path, drives_->Path(drive));
    const uint64_t size = DriveDir::Size(path);
    if (::renameat2(drives_->fd(), by.c_str(), drives_->fd(), drive.c_str(), RENAME_EXCHANGE) != 0)
      return FailErrno("replace a drive");
    if (auto r = RemoveDrive(by); !r) log::Warn("{}", r.error().message);
    return CreateDrive(drive, size, DiskOwner{});
  }
  Result<> RemoveDrive(const std::string& name) override {
    SB_TRY(Fd dir, os::OpenInside(drives_->fd(), name, O_RDONLY | O_DIRECTORY));
    SB_TRY(uint64_t id, os::SubvolumeId(dir.get()));
    dir.Reset();
    SB_TRYV(Remove(drives_->fd(), name));
    groups_.Gone(id);
    return {};
  }

  Result<> Tidy() const override {
    // One that cannot be removed or sealed must not keep the others from it.
    Result<> all;
    auto note = [&all](Result<> done) {
      if (all && !done) all = std::move(done);
    };
    for (const std::string& name : sealing_) note(Settle(name));
    for (int dir : {machines_.get(), snapshots_->fd(), drives_->fd(), memory_.fd()})
      note(EachGone(dir, [dir](const std::string& name) {
        auto done = os::DestroySubvolume(dir, name);
        // Perhaps a directory that is none.
        return done ? done : os::RemoveTree(dir, name);
      }));
    const int manifests = snapshots_->manifests_fd();
    note(EachGone(manifests, [manifests](const std::string& name) -> Result<> {
      if (::unlinkat(manifests, name.c_str(), 0) != 0 && errno != ENOENT) return FailErrno("remove " + name);
      return {};
    }));
    return all;
  }
  std::vector<int> tidy_fds() const override {
    return {machines_.get(), snapshots_->fd(), drives_->fd(), snapshots_->manifests_fd(), memory_.fd()};
  }
  bool untidy() const override { return untidy_ || unsealed(); }
  bool unsealed() const override { return !unsealed_.empty(); }
  void BeginTidy() override {
    untidy_ = false;
    sealing_ = std::exchange(unsealed_, {});
  }
  void EndTidy(bool done) override {
    if (!done) {
      std::erase_if(sealing_, [this](const std::string& name) { return Sealed(name); });
      unsealed_.merge(sealing_);
      untidy_ = true;
    }
    sealing_.clear();
  }

  bool Housekeep() override { return groups_.Housekeep(); }
  bool backlog() const override { return groups_.backlog(); }

 private:
  // A copy counts for the project of the slot that it is made from or for.
  SlotCopy NewCopy(const DiskSlot& slot) const {
    SlotCopy copy;
    copy.slot.group = groups_.mode() == os::QuotaMode::kSimple ? slot.group : 0;
    copy.slot.name = NewLabel("w-", 16);
    copy.slot.path = path_ + "/machines/" + copy.slot.name;
    return copy;
  }
  // The kernel's work of removing grows with files, with what it has of them in memory, and with bytes.
  Result<> Remove(int dir, const std::string& name) const {
    SB_TRYV(GiveUp(dir, name));
    untidy_ = true;
    return {};
  }
  template <class F>
  static Result<> EachGone(int dir, F remove) {
    SB_TRY(auto names, os::ListDir(dir));
    Result<> all;
    for (const auto& name : names) {
      if (!name.starts_with(kGone)) continue;
      if (auto done = remove(name); !done) all = std::move(done);
    }
    return all;
  }
  // One that cannot be looked at is not.
  bool Sealed(const std::string& snapshot) const {
    auto dir = os::OpenInside(snapshots_->fd(), snapshot, O_RDONLY | O_DIRECTORY);
    auto sealed = dir ? os::IsSubvolumeReadOnly(dir->get()) : Result<bool>(false);
    if (!sealed) log::Warn("snapshot {}: {}", snapshot, sealed.error().message);
    return sealed && *sealed;
  }
  // What an older version left in no group counts for nobody, but within the limit of all.
  void CountForAll(int subvolume) {
    auto id = os::SubvolumeId(subvolume);
    auto above = id ? os::QuotaGroupsAbove(root_.get(), *id) : std::unexpected(id.error());
    if (!above || !above->empty() || groups_.mode() != os::QuotaMode::kSimple) return;
    if (auto joined = groups_.Join(*id, DiskOwner{}); !joined) log::Warn("{}", joined.error().message);
  }
  // A snapshot loses its scratch space, and nobody can write to it any more.
  Result<> Settle(const std::string& snapshot) const {
    auto dir = os::OpenInside(snapshots_->fd(), snapshot, O_RDONLY | O_DIRECTORY);
    if (!dir && dir.error().sys_errno == ENOENT) return {};  // removed meanwhile
    if (!dir) return std::unexpected(std::move(dir).error());
    SB_TRYV(os::RemoveTree(dir->get(), "work"));
    return os::MakeSubvolumeReadOnly(dir->get());
  }
  static Result<uint64_t> IdOf(const std::string& path) {
    SB_TRY(Fd dir, os::OpenPath(path, O_RDONLY | O_DIRECTORY));
    return os::SubvolumeId(dir.get());
  }
  Result<> Fill(const DiskSlot& slot) const {
    SB_TRY(Fd dir, os::OpenInside(machines_.get(), slot.name, O_RDONLY | O_DIRECTORY));
    SB_TRYV(os::EnsureDir(dir.get(), "upper", 0755));
    SB_TRYV(os::EnsureDir(dir.get(), "work", 0755));
    return {};
  }

  std::string path_;
  Fd root_;
  StoreGroups groups_;
  Fd machines_;
  std::optional<SnapshotDir> snapshots_;
  std::optional<DriveDir> drives_;
  MemoryDir memory_;
  std::set<std::string> unsealed_, sealing_;  // snapshots: to be, and by a process that is at it
  mutable bool untidy_ = false;               // something was removed since a process began to tidy
};

}  // namespace

uint64_t OwnLimit(uint64_t limit, uint64_t inherited) {
  if (limit == 0 || inherited == 0) return limit;
  if (inherited + kLeastGrowth <= limit) return limit - inherited;
  // Bytes that earlier sessions wrote beyond the limit are taken off what this session gets beyond it.
  const uint64_t beyond = inherited - std::min(inherited, limit);
  return std::max(kLeastGrowth - std::min(kLeastGrowth, beyond), kLeastToDelete);
}

Result<> CopySlot(const SlotCopy& copy) {
  return os::SnapshotSubvolume(copy.source.get(), copy.parent.get(), copy.slot.name, true, copy.slot.group);
}

Result<> MakeStart(const SlotCopy& copy) {
  SB_TRYV(CopySlot(copy));
  SB_TRY(Fd dir, os::OpenInside(copy.parent.get(), copy.slot.name, O_RDONLY | O_DIRECTORY));
  // Of a snapshot that is still settling.
  SB_TRYV(os::RemoveTree(dir.get(), "work"));
  SB_TRYV(os::EnsureDir(dir.get(), "work", 0755));
  return {};
}

Result<std::unique_ptr<Disk>> OpenBtrfsDisk(const DiskOptions& options) {
  SB_TRY(StoreMount store, MountStoreImage(options));
  SB_TRY(Fd machines, os::EnsureDir(store.root.get(), "machines", 0700));
  SB_TRY(Fd snapshots, os::EnsureDir(store.root.get(), "snapshots", 0700));
  SB_TRY(Fd drives, os::EnsureDir(store.root.get(), "drives", 0700));
  SB_TRY(Fd manifests, os::EnsureDir(store.root.get(), "manifests", 0700));
  SB_TRY(Fd memory, os::EnsureDir(store.root.get(), "memory", 0700));
  SB_TRYV(os::RemoveTree(store.root.get(), "site"));
  SB_TRYV(os::EnsureDir(store.root.get(), "site", 0700));
  auto disk =
      std::make_unique<BtrfsDisk>(options.mount_point, std::move(store), std::move(machines), std::move(snapshots),
                                  std::move(manifests), std::move(drives), std::move(memory));
  SB_TRYV(disk->Start());
  SB_TRYV(disk->Resettle());
  return disk;
}

}  // namespace sandbar::spawner
