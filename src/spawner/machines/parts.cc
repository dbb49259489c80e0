#include "spawner/machines/parts.h"

#include "base/ids.h"
#include "base/log.h"
#include "os/userns.h"
#include "spawner/host_resources.h"
#include "spawner/machines/entrants.h"

namespace sandbar::spawner {
namespace {

template <class T, class Make>
Result<T> TakeOr(std::deque<T>& ready, Make make) {
  if (ready.empty()) return make();
  T part = std::move(ready.front());
  ready.pop_front();
  return part;
}

}  // namespace

Result<Identity> PartPool::MakeIdentity() const {
  Identity identity;
  SB_TRY(identity.lease, host_->uids->Acquire());
  SB_TRY(identity.userns, os::CreateUserNamespace(identity.lease.base()));
  return identity;
}

Result<std::unique_ptr<os::MachineCgroup>> PartPool::MakeGroup() const {
  return host_->cgroups->Create(NewLabel("g-", 16), os::CgroupLimits{});
}

Result<std::unique_ptr<os::MachineCgroup>> PartPool::TakeGroup(const os::CgroupLimits& limits) {
  Parts parts;
  SB_TRY(parts.group, TakeOr(groups_, [this] { return MakeGroup(); }));
  if (auto set = parts.group->SetLimits(limits); !set) {
    Discard(std::move(parts));
    return std::unexpected(std::move(set).error());
  }
  return std::move(parts.group);
}

Result<os::MachineNet> PartPool::TakeNet(const Want& want, const Identity& identity) {
  if (want.net == NetKind::kTap) return os::CreateTapNet(want.mac);
  if (want.net == NetKind::kVeth) return os::CreateVethNet(identity.userns.get());
  return TakeOr(nets_, [] { return os::CreateLocalNet(); });
}

Result<Parts> PartPool::MakeRoom() {
  Parts room;
  auto fill = [&]() -> Result<> {
    SB_TRY(room.net, TakeOr(nets_, [] { return os::CreateLocalNet(); }));
    SB_TRY(room.group, TakeOr(groups_, [this] { return MakeGroup(); }));
    SB_TRY(room.entrant, StartEntrant(*host_, *room.group, room.net));
    return {};
  };
  if (auto r = fill(); !r) {
    Discard(std::move(room));
    return std::unexpected(std::move(r).error());
  }
  return room;
}

Result<Parts> PartPool::TakeRoom() {
  // The host may have been out of memory.
  while (!rooms_.empty() && !rooms_.front().entrant.alive()) {
    log::Warn("a process that waited for a machine has ended");
    Discard(std::move(rooms_.front()));
    rooms_.pop_front();
  }
  return TakeOr(rooms_, [this] { return MakeRoom(); });
}

Result<Parts> PartPool::Take(const Want& want) {
  failing_ = false;
  Parts parts;
  auto fill = [&]() -> Result<> {
    if (want.entrant) {
      SB_TRY(parts, TakeRoom());
    }
    SB_TRY(parts.identity, TakeOr(identities_, [this] { return MakeIdentity(); }));
    if (want.nesting) {
      SB_TRY(parts.identity.userns, os::CreateBoundedNamespace(parts.identity.userns.get()));
    }
    if (!want.entrant) {
      SB_TRY(parts.net, TakeNet(want, parts.identity));
      SB_TRY(parts.group, TakeOr(groups_, [this] { return MakeGroup(); }));
    }
    SB_TRY(parts.disk, TakeOr(disks_, [this] { return host_->disk->Create(); }));
    return {};
  };
  if (auto r = fill(); !r) {
    Discard(std::move(parts));
    return std::unexpected(std::move(r).error());
  }
  return parts;
}

bool PartPool::Refill() {
  if (failing_) return false;
  auto add = [this](auto& ready, auto made) {
    if (made) {
      ready.push_back(std::move(*made));
      return true;
    }
    log::Warn("making parts ahead: {}", made.error().message);
    failing_ = true;
    return false;
  };
  if (identities_.size() < depth_) return add(identities_, MakeIdentity());
  if (nets_.size() < depth_) return add(nets_, os::CreateLocalNet());
  if (groups_.size() < depth_) return add(groups_, MakeGroup());
  if (disks_.size() < depth_) return add(disks_, host_->disk->Create());
  if (rooms_.size() < depth_) return add(rooms_, MakeRoom());
  return false;
}

bool PartPool::Remove(Parts& parts) const {
  parts.entrant = {};
  if (parts.group) {
    auto removed = parts.group->Remove();
    if (!removed && removed.error().code == Code::kConflict) return false;
    if (!removed) log::Error("control group: {}", removed.error().message);
    parts.group.reset();
  }
  if (!parts.disk.name.empty()) {
    if (auto r = host_->disk->Destroy(parts.disk); !r) log::Error("{}", r.error().message);
    parts.disk = {};
  }
  parts.net = {};
  parts.identity = {};
  return true;
}

bool PartPool::Sweep() {
  std::vector<Parts> busy;
  for (Parts& parts : leaving_) {
    if (!Remove(parts)) busy.push_back(std::move(parts));
  }
  leaving_ = std::move(busy);
  return leaving_.empty();
}

void PartPool::Clear() {
  for (Parts& room : rooms_) Discard(std::move(room));
  for (auto& group : groups_) {
    Parts parts;
    parts.group = std::move(group);
    Discard(std::move(parts));
  }
  for (DiskSlot& disk : disks_) {
    Parts parts;
    parts.disk = std::move(disk);
    Discard(std::move(parts));
  }
  rooms_.clear();
  groups_.clear();
  disks_.clear();
  nets_.clear();
  identities_.clear();
  if (!Sweep()) log::Warn("a spare control group is busy");
}

}  // namespace sandbar::spawner
