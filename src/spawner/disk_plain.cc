// The disk as plain directories below <data>/store, for hosts without btrfs: no limit per machine, and nobody is told
// that there is one. Deleting a tree can take long, so it is renamed away and removed by a process of its own.
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <optional>

#include "base/ids.h"
#include "base/log.h"
#include "os/mounts.h"
#include "os/openat.h"
#include "os/process.h"
#include "spawner/disk.h"
#include "spawner/snapshot_dir.h"

namespace sandbar::spawner {
namespace {

class PlainDisk : public Disk {
 public:
  PlainDisk(std::string path, Fd machines, Fd snapshots, Fd trash)
      : path_(std::move(path)),
        machines_(std::move(machines)),
        snapshots_(std::in_place, path_ + "/snapshots", std::move(snapshots)),
        trash_(std::move(trash)) {}
  ~PlainDisk() override {
    snapshots_.reset();
    if (remover_) {
      if (auto r = os::SendSignal(remover_.get(), 9); !r) log::Warn("{}", r.error().message);
    }
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
  Result<> StartFrom(DiskSlot&, const std::string&) override {
    return Fail(Code::kUnsupported, "plain directories cannot share their contents");
  }
  Result<> SetLimit(const DiskSlot&, uint64_t bytes) override {
    if (bytes != 0) return Fail(Code::kUnsupported, "this server cannot limit a machine's disk (--disk-limit none)");
    return {};
  }
  Result<uint64_t> Usage(const DiskSlot&) const override { return 0; }

  Result<> Destroy(const DiskSlot& slot) override { return MoveToTrash(machines_.get(), slot.name); }

  Result<> Publish(const DiskSlot& slot, const std::string& snapshot) override {
    return snapshots_->Take(machines_.get(), slot.name, snapshot);
  }
  Result<std::string> SnapshotLayer(const std::string& snapshot) const override { return snapshots_->Layer(snapshot); }
  Result<std::vector<std::string>> ListSnapshots(const std::string& after, size_t max) const override {
    return snapshots_->List(after, max);
  }
  Result<> RemoveSnapshot(const std::string& snapshot) override {
    SB_TRYV(MoveToTrash(snapshots_->fd(), snapshot));
    return {};
  }

  bool Housekeep() override {
    if (remover_) {
      auto ended = os::TryReap(remover_.get());
      if (ended && !ended->has_value()) return false;
      remover_.Reset();
    }
    if (!trash_full_) return false;
    trash_full_ = false;
    StartRemover();
    return false;
  }

  bool backlog() const override { return trash_full_ || remover_; }
  void MarkTrash() { trash_full_ = true; }

 private:
  Result<> MoveToTrash(int from, const std::string& name) {
    if (::renameat(from, name.c_str(), trash_.get(), name.c_str()) != 0 && errno != ENOENT)
      return FailErrno("remove a layer");
    trash_full_ = true;
    return {};
  }
  void StartRemover() {
    pid_t pid = ::fork();
    if (pid < 0) {
      log::Warn("cannot start the remover: {}", FailErrno("fork").error().message);
      return;
    }
    if (pid == 0) {
      // It may live long: it must not hold the daemon's connection, a machine's lease or anything else of ours.
      Fd trash(::dup2(trash_.Release(), 3));
      ::syscall(SYS_close_range, 4, ~0U, 0);
      auto names = os::ListDir(trash.get());
      bool ok = names.has_value();
      if (names) {
        for (const auto& name : *names) ok = os::RemoveTree(trash.get(), name).has_value() && ok;
      }
      ::_exit(ok ? 0 : 1);
    }
    remover_ = Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  }

  std::string path_;
  Fd machines_;
  std::optional<SnapshotDir> snapshots_;
  Fd trash_, remover_;
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
  SB_TRY(Fd trash, os::EnsureDir(root.get(), "trash", 0700));
  SB_TRY(auto names, os::ListDir(machines.get()));
  for (const auto& name : names) {
    if (::renameat(machines.get(), name.c_str(), trash.get(), name.c_str()) != 0) return FailErrno("move leftovers");
  }
  SB_TRYV(os::RemoveTree(root.get(), "site"));
  SB_TRYV(os::EnsureDir(root.get(), "site", 0700));
  auto disk =
      std::make_unique<PlainDisk>(options.mount_point, std::move(machines), std::move(snapshots), std::move(trash));
  disk->MarkTrash();
  return disk;
}

}  // namespace sandbar::spawner
