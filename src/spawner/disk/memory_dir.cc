#include "spawner/disk/memory_dir.h"

#include <fcntl.h>
#include <stdio.h>

#include "base/log.h"
#include "os/btrfs.h"
#include "os/openat.h"
#include "spawner/disk/layers.h"
#include "spawner/disk/snapshot_dir.h"

namespace sandbar::spawner {
namespace {

constexpr size_t kMaxSnapshotName = 64;
constexpr const char* kMemoryFile = "/memory";
constexpr const char* kHalf = ".half";  // ends the name of a memory that is being written; no snapshot has such a name

}  // namespace

Result<Fd> MemoryDir::Create(const std::string& snapshot, const DiskSlot& slot) {
  if (!ValidId(snapshot, kMaxSnapshotName)) return Fail(Code::kBadRequest, "bad snapshot name");
  const std::string half = snapshot + kHalf;
  SB_TRY(uint64_t id, os::CreateSubvolume(dir_.get(), half));
  auto make = [&]() -> Result<Fd> {
    if (slot.group != 0) SB_TRYV(groups_->JoinLike(id, slot.id));
    return os::OpenInside(dir_.get(), half + kMemoryFile, O_RDWR | O_CREAT | O_EXCL, 0600);
  };
  auto file = make();
  if (!file) Remove(half);
  return file;
}

Result<> MemoryDir::Publish(const std::string& snapshot) const {
  const std::string half = snapshot + kHalf;
  if (::renameat(dir_.get(), half.c_str(), dir_.get(), snapshot.c_str()) != 0)
    return FailErrno("publish the memory of " + snapshot);
  return {};
}

Result<Fd> MemoryDir::Open(const std::string& snapshot) const {
  if (!ValidId(snapshot, kMaxSnapshotName)) return Fail(Code::kBadRequest, "bad snapshot name");
  auto file = os::OpenInside(dir_.get(), snapshot + kMemoryFile, O_RDONLY);
  // Older stores have a plain file, whose bytes count for nobody.
  if (!file) file = os::OpenInside(dir_.get(), snapshot, O_RDONLY);
  if (!file) return Fail(Code::kNotFound, "snapshot " + snapshot + " has no memory");
  return file;
}

void MemoryDir::Drop(const std::string& snapshot) {
  Remove(snapshot + kHalf);
}

void MemoryDir::Remove(const std::string& snapshot) {
  if (auto dir = os::OpenInside(dir_.get(), snapshot, O_RDONLY | O_DIRECTORY)) {
    if (auto id = os::SubvolumeId(dir->get())) groups_->Gone(*id);
  }
  if (auto r = GiveUp(dir_.get(), snapshot); !r) log::Warn("{}", r.error().message);
}

void MemoryDir::Sweep(const std::function<bool(const std::string&)>& exists) {
  auto names = os::ListDir(dir_.get());
  for (const auto& name : names ? *names : std::vector<std::string>{}) {
    if (!exists(name)) Remove(name);
  }
}

}  // namespace sandbar::spawner
