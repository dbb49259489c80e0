#include "spawner/disk/store_groups.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>

#include "base/log.h"
#include "os/openat.h"

namespace sandbar::spawner {
namespace {

constexpr uint64_t kMiB = 1ULL << 20, kGiB = 1ULL << 30;
constexpr uint64_t kAll = os::GroupId(2, 0);
constexpr uint64_t kLeast = 32 * kMiB;  // less is of no use to a machine
constexpr uint64_t kLeastOfBudget =
    4 * kMiB;  // with less, the kernel would refuse a machine in the middle of its start
constexpr uint64_t kFirstSubvolume = 256;
constexpr size_t kBallastEntries = 8192;
constexpr size_t kBallastLeast = 2048;  // together they are as large as the first chunk
constexpr size_t kBallastBytes = 3500;  // of one link's target: it is stored with the metadata

uint64_t Less(uint64_t a, uint64_t b) {
  return a > b ? a - b : 0;
}

uint64_t GroupOf(uint64_t project) {
  return os::GroupId(1, project);
}

// What metadata gets in one piece, before data takes everything.
uint64_t MetadataSpace(uint64_t total) {
  return std::clamp(total / 20, 32 * kMiB, kGiB);
}

}  // namespace

StoreSpace SpaceOf(const os::BtrfsSpace& space, uint64_t host_free, uint64_t host_total, uint64_t backed) {
  StoreSpace room;
  room.total = space.total;
  const uint64_t data_reserve = std::clamp(space.total / 50, 16 * kMiB, 2 * kGiB);
  const uint64_t metadata_reserve = MetadataSpace(space.total) / 4;
  const uint64_t host_reserve = std::clamp(host_total / 100, 32 * kMiB, 2 * kGiB);
  const uint64_t data = Less(space.data_free + space.unallocated, data_reserve);
  // A guest decides whether it writes large files or many small ones, and one limit holds for both.
  const uint64_t metadata = Less(space.metadata_free + space.unallocated, metadata_reserve);
  // What was promised by fallocate and not yet written takes room below later.
  const uint64_t host = Less(host_free, host_reserve + Less(space.used, backed));
  room.left = std::min({data, metadata, host});
  return room;
}

uint64_t StoreGroups::GroupForCopy(int fs, uint64_t subvolume, os::QuotaMode mode) {
  // Full quotas would have to count everything anew when a copy joins another group.
  if (mode != os::QuotaMode::kSimple) return 0;
  auto above = os::QuotaGroupsAbove(fs, subvolume);
  return above && !above->empty() ? above->front() : 0;
}

Result<> StoreGroups::Start() {
  SB_TRYV(os::CreateQuotaGroup(root_, kAll));
  SB_TRYV(KeepMetadataSpace());
  os::ReclaimDataChunks(root_);
  SB_TRY(StoreSpace room, Space());
  total_ = room.total;
  Adjust();
  return FindStale();
}

// Data must not take the last chunks: a filesystem without room for metadata cannot even delete. So the first chunk of
// metadata is made large, and a few megabytes of it are filled by us, because the kernel makes no chunk that nobody
// needs and takes back one that is empty.
Result<> StoreGroups::KeepMetadataSpace() {
  SB_TRY(os::BtrfsSpace space, os::SpaceOf(root_));
  const uint64_t wanted = std::min(MetadataSpace(space.total), space.total / 10);
  if (auto set = os::SetMetadataChunkSize(root_, wanted); !set) log::Warn("{}", set.error().message);
  SB_TRY(Fd ballast, os::EnsureDir(root_, "ballast", 0700));
  auto made = os::ListDir(ballast.get());
  if (!made || !made->empty()) return {};
  const std::string target(kBallastBytes, 'b');
  for (size_t i = 0; i < kBallastEntries; ++i) {
    if (i == 0 || (i >= kBallastLeast && i % 512 == 0)) {
      // Chunks are made when metadata is written out.
      if (i != 0 && ::syncfs(root_) != 0) return FailErrno("sync the store");
      SB_TRY(space, os::SpaceOf(root_));
      if (space.metadata_free >= wanted / 2) return {};
    }
    if (::symlinkat(target.c_str(), ballast.get(), std::to_string(i).c_str()) != 0)
      return errno == ENOSPC || errno == EDQUOT ? Result<>{} : FailErrno("keep room for metadata");
  }
  return {};
}

// What an earlier process did not get to, or an earlier version did not know.
Result<> StoreGroups::FindStale() {
  SB_TRY(auto groups, os::ListQuotaGroups(root_));
  for (uint64_t group : groups) {
    if (os::GroupLevel(group) == 1) perhaps_empty_.insert(group);
    if (os::GroupLevel(group) != 0 || group < kFirstSubvolume) continue;
    SB_TRY(bool exists, os::SubvolumeExists(root_, group));
    if (!exists) stale_.push_back(group);
  }
  return {};
}

Result<StoreSpace> StoreGroups::Space() const {
  SB_TRY(os::BtrfsSpace space, os::SpaceOf(root_));
  struct statvfs host{};
  struct stat image{};
  if (::fstatvfs(image_.get(), &host) != 0 || ::fstat(image_.get(), &image) != 0) return FailErrno("stat store.img");
  const auto free_bytes = static_cast<uint64_t>(host.f_bavail) * host.f_frsize;
  const auto total = static_cast<uint64_t>(host.f_blocks) * host.f_frsize;
  return SpaceOf(space, free_bytes, total, static_cast<uint64_t>(image.st_blocks) * 512);
}

Result<uint64_t> StoreGroups::Ensure(const DiskOwner& owner) {
  const uint64_t group = GroupOf(owner.project);
  auto known = projects_.find(group);
  if (known == projects_.end()) {
    SB_TRYV(os::CreateQuotaGroup(root_, group));
    SB_TRYV(os::JoinQuotaGroup(root_, group, kAll));
    known = projects_.emplace(group, 0).first;
  }
  // What belongs to nobody yet has nothing but the common limit.
  const uint64_t budget = owner.project == 0 ? 0 : Budget(owner);
  if (budget != known->second) {
    SB_TRYV(os::SetSubvolumeLimit(root_, group, budget));
    known->second = budget;
  }
  return group;
}

Result<uint64_t> StoreGroups::Join(uint64_t subvolume, const DiskOwner& owner) {
  SB_TRY(uint64_t group, Ensure(owner));
  SB_TRY(auto before, os::QuotaGroupsAbove(root_, subvolume));
  SB_TRYV(os::JoinQuotaGroup(root_, subvolume, group));
  for (uint64_t other : before) {
    if (other == group) continue;
    SB_TRYV(os::LeaveQuotaGroup(root_, subvolume, other));
    perhaps_empty_.insert(other);
  }
  return group;
}

Result<> StoreGroups::JoinLike(uint64_t subvolume, uint64_t like) {
  SB_TRY(auto groups, os::QuotaGroupsAbove(root_, like));
  for (uint64_t group : groups) SB_TRYV(os::JoinQuotaGroup(root_, subvolume, group));
  return {};
}

Result<> StoreGroups::CheckSpace(const DiskOwner& owner, uint64_t wanted) const {
  SB_TRY(StoreSpace room, Space());
  if (room.left < kLeast + wanted)
    return Fail(Code::kNoSpace, "the server's disk is full: " + std::to_string(room.left / kMiB) +
                                    " MiB left for sandboxes; delete some, or snapshots, and try again");
  const uint64_t group = GroupOf(owner.project);
  if (owner.project == 0 || !projects_.contains(group)) return {};
  SB_TRY(uint64_t used, os::QuotaGroupUsage(root_, group));
  if (used + kLeastOfBudget + wanted < Budget(owner)) return {};
  return Fail(Code::kQuota, "this project uses " + std::to_string(used / kMiB) + " MiB of the server's disk, and its " +
                                "budget is " + std::to_string(Budget(owner) / kMiB) +
                                " MiB; delete sandboxes, snapshots or drives of it, and try again");
}

Result<DiskRoom> StoreGroups::Room(uint64_t subvolume, uint64_t group) const {
  SB_TRY(os::QuotaGroupState own, os::ReadQuotaGroup(root_, subvolume));
  DiskRoom room{own.limit, own.held, UINT64_MAX};
  auto bound = [&room](const os::QuotaGroupState& by) {
    if (by.limit != 0) room.left = std::min(room.left, Less(by.limit, by.held));
  };
  bound(own);
  // A copy may be in no group but the one of all guests, or in none.
  for (uint64_t above : {group, kAll}) {
    if (above == 0) continue;
    SB_TRY(os::QuotaGroupState state, os::ReadQuotaGroup(root_, above));
    bound(state);
  }
  if (room.left == UINT64_MAX) return Fail(Code::kUnavailable, "the store has no limit yet");
  return room;
}

void StoreGroups::Adjust() {
  auto room = Space();
  auto used = os::QuotaGroupUsage(root_, kAll);
  if (!room || !used) {
    log::Warn("room in the store: {}", (room ? used.error() : room.error()).message);
    return;
  }
  // Zero would mean no limit.
  const uint64_t limit = std::max<uint64_t>(*used + room->left, 1);
  const uint64_t change = limit > limit_ ? limit - limit_ : limit_ - limit;
  if (limit_ != 0 && change < std::max(total_ / 1000, kMiB)) return;
  if (auto set = os::SetSubvolumeLimit(root_, kAll, limit); !set) {
    log::Warn("limit of the store: {}", set.error().message);
    return;
  }
  limit_ = limit;
}

void StoreGroups::Gone(uint64_t subvolume) {
  stale_.push_back(subvolume);
  auto above = os::QuotaGroupsAbove(root_, subvolume);
  if (above) perhaps_empty_.insert(above->begin(), above->end());
}

bool StoreGroups::TryRemove(uint64_t project) {
  if (os::GroupLevel(project) != 1 || !os::RemoveQuotaGroup(root_, project)) return false;
  projects_.erase(project);
  return true;
}

bool StoreGroups::Housekeep() {
  if (!stale_.empty()) {
    const uint64_t group = stale_.front();
    stale_.pop_front();
    auto removed = os::RemoveQuotaGroup(root_, group);
    if (!removed && removed.error().code == Code::kConflict) {
      stale_.push_back(group);
      // The kernel is still freeing, or somebody shares what is in it: others need not wait for that.
      for (auto it = perhaps_empty_.begin(); it != perhaps_empty_.end();)
        it = TryRemove(*it) ? perhaps_empty_.erase(it) : std::next(it);
      return false;
    }
    if (!removed) log::Warn("quota group {}: {}", group, removed.error().message);
    return true;
  }
  if (perhaps_empty_.empty()) return false;
  const uint64_t group = *perhaps_empty_.begin();
  perhaps_empty_.erase(perhaps_empty_.begin());
  // The kernel refuses when it has members. When the last one goes, it is looked at again.
  static_cast<void>(TryRemove(group));
  return !perhaps_empty_.empty();
}

}  // namespace sandbar::spawner
