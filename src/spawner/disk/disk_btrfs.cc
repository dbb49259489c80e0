// The disk on a btrfs image: <data>/store.img through a loop device, mounted in the private mount namespace only, so it
// is gone with the process. Only snapshots outlive the spawner: at start every machine's subvolume is a leftover.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <utility>

#include "base/ids.h"
#include "base/log.h"
#include "os/btrfs.h"
#include "os/mounts.h"
#include "os/mounts_loop.h"
#include "os/openat.h"
#include "os/process.h"
#include "spawner/disk/disk.h"
#include "spawner/disk/drive_dir.h"
#include "spawner/disk/layers.h"
#include "spawner/disk/snapshot_dir.h"
#include "spawner/disk/store_groups.h"
#include "spawner/disk/vm_disk.h"

namespace sandbar::spawner {
namespace {

constexpr uint64_t kSmallestPool = 256ULL << 20;
constexpr off_t kMagicOffset = 0x10040;
constexpr std::string_view kMagic = "_BHRfS_M";
constexpr size_t kMaxSnapshotName = 64;
constexpr const char* kMemoryFile = "/memory";
// What a machine on a snapshot that fills its limit may still write: enough to start and to delete.
constexpr uint64_t kLeastGrowth = 8ULL << 20, kLeastToDelete = 1ULL << 20;
constexpr const char* kHalf = ".half";  // behind the name of a memory that is being written: no snapshot's name

Result<Fd> OpenImage(int data) {
  SB_TRY(Fd image, os::OpenInside(data, "store.img", O_RDWR | O_CREAT, 0600));
  struct stat st{};
  if (::fstat(image.get(), &st) != 0) return FailErrno("stat store.img");
  // The data directory belongs to the daemon: an image that somebody else could have written is never mounted.
  if (!S_ISREG(st.st_mode) || st.st_uid != 0 || st.st_nlink != 1 || (st.st_mode & 077) != 0)
    return Fail(Code::kForbidden, "store.img must be a regular file of root with mode 0600");
  return image;
}

Result<bool> HasFilesystem(int image) {
  std::array<char, 8> magic{};
  ssize_t n = ::pread(image, magic.data(), magic.size(), kMagicOffset);
  if (n < 0) return FailErrno("read store.img");
  return std::string_view(magic.data(), static_cast<size_t>(n)) == kMagic;
}

Result<uint64_t> ChoosePoolSize(int image, uint64_t wanted) {
  struct statvfs vfs{};
  if (::fstatvfs(image, &vfs) != 0) return FailErrno("statvfs");
  uint64_t free_bytes = static_cast<uint64_t>(vfs.f_bavail) * vfs.f_frsize;
  uint64_t size = wanted != 0 ? wanted : free_bytes / 10 * 8;
  size = size / (1 << 20) * (1 << 20);
  if (size < kSmallestPool)
    return Fail(Code::kQuota,
                "the disk is too full for the machines' store: " + std::to_string(free_bytes >> 20) +
                    " MiB free, at least 320 MiB needed (or [disk] limit = \"none\" in the configuration)");
  return size;
}

// An operator may ask for more than last time; less is never taken away.
Result<> GrowImage(int image, uint64_t wanted) {
  struct stat st{};
  if (::fstat(image, &st) != 0) return FailErrno("stat store.img");
  wanted = wanted / (1 << 20) * (1 << 20);
  if (wanted <= static_cast<uint64_t>(st.st_size)) return {};
  if (::ftruncate(image, static_cast<off_t>(wanted)) != 0) return FailErrno("grow store.img");
  return {};
}

// Machines of a dead predecessor may hold the old mount a moment longer; after that its device is used again.
Result<os::LoopDevice> LoopFor(int image) {
  for (int i = 0; i < 50; ++i) {
    auto old = os::FindLoop(image);
    if (!old) return os::AttachLoop(image, false);
    if (i == 49) return old;
    old->fd.Reset();
    ::usleep(20'000);
  }
  return os::AttachLoop(image, false);
}

class BtrfsDisk : public Disk {
 public:
  BtrfsDisk(std::string path, Fd root, Fd machines, Fd snapshots, Fd manifests, Fd drives, Fd memory, Fd image,
            os::QuotaMode mode)
      : path_(std::move(path)),
        root_(std::move(root)),
        groups_(root_.get(), std::move(image), mode),
        machines_(std::move(machines)),
        snapshots_(std::in_place, path_ + "/snapshots", std::move(snapshots), std::move(manifests)),
        drives_(std::in_place, path_ + "/drives", std::move(drives)),
        memory_(std::move(memory)) {}
  Result<> Start() { return groups_.Start(); }
  ~BtrfsDisk() override {
    snapshots_.reset();
    drives_.reset();
    machines_.Reset();
    memory_.Reset();
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
    if (!ValidId(snapshot, kMaxSnapshotName)) return Fail(Code::kBadRequest, "bad snapshot name");
    if (snapshots_->Layer(snapshot)) return Fail(Code::kConflict, "snapshot " + snapshot + " exists already");
    // A subvolume of its own, so that it counts for its project.
    const std::string half = snapshot + kHalf;
    SB_TRY(uint64_t id, os::CreateSubvolume(memory_.get(), half));
    auto make = [&]() -> Result<Fd> {
      if (slot.group != 0) SB_TRYV(groups_.JoinLike(id, slot.id));
      return os::OpenInside(memory_.get(), half + kMemoryFile, O_RDWR | O_CREAT | O_EXCL, 0600);
    };
    auto file = make();
    if (!file) EraseMemory(half);
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
    // The memory first: a snapshot of this kind never exists without.
    const std::string half = snapshot + kHalf;
    if (::renameat(memory_.get(), half.c_str(), memory_.get(), snapshot.c_str()) != 0)
      return FailErrno("publish the memory of " + snapshot);
    auto published = Publish(copy.slot, snapshot);
    if (!published) RemoveMemory(snapshot);
    if (published) copy = {};
    return published;
  }
  void DropMemory(const std::string& snapshot) override { RemoveMemory(snapshot + kHalf); }
  void DropCopy(const SlotCopy& copy) override {
    if (copy.slot.name.empty()) return;
    auto there = os::OpenInside(machines_.get(), copy.slot.name, O_RDONLY | O_DIRECTORY);
    if (!there) return;
    DiskSlot slot = copy.slot;
    if (auto id = os::SubvolumeId(there->get())) slot.id = *id;
    if (auto r = Destroy(slot); !r) log::Warn("{}", r.error().message);
  }
  Result<Fd> OpenMemory(const std::string& snapshot) const override {
    if (!ValidId(snapshot, kMaxSnapshotName)) return Fail(Code::kBadRequest, "bad snapshot name");
    auto file = os::OpenInside(memory_.get(), snapshot + kMemoryFile, O_RDONLY);
    // As it was before it counted for anybody.
    if (!file) file = os::OpenInside(memory_.get(), snapshot, O_RDONLY);
    if (!file) return Fail(Code::kNotFound, "snapshot " + snapshot + " has no memory");
    return file;
  }
  void RemoveMemory(const std::string& snapshot) override { EraseMemory(snapshot); }
  // Memory whose snapshot never came to be.
  void SweepMemory() {
    auto names = os::ListDir(memory_.get());
    for (const auto& name : names ? *names : std::vector<std::string>{}) {
      if (!snapshots_->Layer(name)) RemoveMemory(name);
    }
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
    SweepMemory();
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
    for (int dir : {machines_.get(), snapshots_->fd(), drives_->fd(), memory_.get()})
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
    return {machines_.get(), snapshots_->fd(), drives_->fd(), snapshots_->manifests_fd(), memory_.get()};
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
  // Not an error when there is none. A store that is older than quotas of memory has plain files here.
  void EraseMemory(const std::string& name) {
    if (auto dir = os::OpenInside(memory_.get(), name, O_RDONLY | O_DIRECTORY)) {
      if (auto id = os::SubvolumeId(dir->get())) groups_.Gone(*id);
    }
    if (auto r = Remove(memory_.get(), name); !r) log::Warn("{}", r.error().message);
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
  Fd memory_;
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
  SB_TRY(Fd image, OpenImage(options.data));
  SB_TRY(bool formatted, HasFilesystem(image.get()));
  if (!formatted) {
    SB_TRY(uint64_t size, ChoosePoolSize(image.get(), options.pool_bytes));
    if (::ftruncate(image.get(), static_cast<off_t>(size)) != 0) return FailErrno("size store.img");
  } else {
    SB_TRYV(GrowImage(image.get(), options.pool_bytes));
  }
  SB_TRY(os::LoopDevice loop, LoopFor(image.get()));
  if (!formatted) SB_TRYV(os::RunProgram({"mkfs.btrfs", "-q", "-f", "-K", "-m", "single", "-d", "single", loop.path}));
  // Files without checksums cannot be compressed: guests could ask for it, and threads of the kernel would do it, whose
  // time nobody is charged for. Snapshots have manifests, and memory has sums of its own.
  std::vector<os::MountOption> mount_options = {
      {"source", loop.path}, {"discard", "async"}, {"commit", "10"}, {"nodatasum", "", true}};
  auto mount = os::NewMount("btrfs", mount_options,
                            MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC | MOUNT_ATTR_NOATIME);
  if (!mount) return std::unexpected(std::move(mount).error().Context("store.img"));
  SB_TRYV(os::Attach(mount->get(), AT_FDCWD, options.mount_point));
  SB_TRY(Fd root, os::OpenPath(options.mount_point, O_RDONLY | O_DIRECTORY));
  if (auto grown = os::GrowToDevice(root.get()); !grown) log::Warn("{}", grown.error().message);
  SB_TRY(os::QuotaMode mode, os::EnableQuota(root.get(), options.force_full_quota));
  SB_TRY(Fd machines, os::EnsureDir(root.get(), "machines", 0700));
  SB_TRY(Fd snapshots, os::EnsureDir(root.get(), "snapshots", 0700));
  SB_TRY(Fd drives, os::EnsureDir(root.get(), "drives", 0700));
  SB_TRY(Fd manifests, os::EnsureDir(root.get(), "manifests", 0700));
  SB_TRY(Fd memory, os::EnsureDir(root.get(), "memory", 0700));
  SB_TRYV(os::RemoveTree(root.get(), "site"));
  SB_TRYV(os::EnsureDir(root.get(), "site", 0700));
  auto disk =
      std::make_unique<BtrfsDisk>(options.mount_point, std::move(root), std::move(machines), std::move(snapshots),
                                  std::move(manifests), std::move(drives), std::move(memory), std::move(image), mode);
  SB_TRYV(disk->Start());
  SB_TRYV(disk->Resettle());
  return disk;
}

}  // namespace sandbar::spawner
