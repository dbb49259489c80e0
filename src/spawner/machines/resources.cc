#include "spawner/machines/resources.h"

#include "base/ids.h"
#include "base/log.h"
#include "os/userns.h"
#include "spawner/host_resources.h"
#include "spawner/machines/prestarted_init.h"

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

Result<Identity> ResourcePool::MakeIdentity() const {
  Identity identity;
  SB_TRY(identity.lease, host_->uids->Acquire());
  SB_TRY(identity.userns, os::CreateUserNamespace(identity.lease.base()));
  return identity;
}

Result<std::unique_ptr<os::MachineCgroup>> ResourcePool::MakeGroup() const {
  return host_->cgroups->Create(NewLabel("g-", 16), os::CgroupLimits{});
}

Result<std::unique_ptr<os::MachineCgroup>> ResourcePool::TakeGroup(const os::CgroupLimits& limits) {
  MachineResources resources;
  SB_TRY(resources.group, TakeOr(groups_, [this] { return MakeGroup(); }));
  if (auto set = resources.group->SetLimits(limits); !set) {
    Discard(std::move(resources));
    return std::unexpected(std::move(set).error());
  }
  return std::move(resources.group);
}

void ResourcePool::DiscardGroup(std::unique_ptr<os::MachineCgroup> group) {
  if (!group) return;
  MachineResources resources;
  resources.group = std::move(group);
  Discard(std::move(resources));
}

Result<os::MachineNet> ResourcePool::TakeNet(const Want& want, const Identity& identity) {
  if (want.net == NetworkKind::kTap) return os::CreateTapNet(want.mac);
  if (want.net == NetworkKind::kVeth) return os::CreateVethNet(identity.userns.get());
  return TakeOr(nets_, [] { return os::CreateLocalNet(); });
}

Result<MachineResources> ResourcePool::MakeWithInit() {
  MachineResources resources;
  auto fill = [&]() -> Result<> {
    SB_TRY(resources.net, TakeOr(nets_, [] { return os::CreateLocalNet(); }));
    SB_TRY(resources.group, TakeOr(groups_, [this] { return MakeGroup(); }));
    if (host_->tells_disk_figures) {
      SB_TRY(resources.figures, FiguresPage::Make());
    }
    SB_TRY(resources.init, StartInit(*host_, *resources.group, resources.net, resources.figures.fds()));
    resources.figures.CloseFile();
    return {};
  };
  if (auto r = fill(); !r) {
    Discard(std::move(resources));
    return std::unexpected(std::move(r).error());
  }
  return resources;
}

Result<MachineResources> ResourcePool::TakeWithInit() {
  // The host may have been out of memory.
  while (!with_init_.empty() && !with_init_.front().init.alive()) {
    log::Warn("a process that waited for a machine has ended");
    Discard(std::move(with_init_.front()));
    with_init_.pop_front();
  }
  return TakeOr(with_init_, [this] { return MakeWithInit(); });
}

Result<MachineResources> ResourcePool::Take(const Want& want) {
  failing_ = false;
  MachineResources resources;
  auto fill = [&]() -> Result<> {
    if (want.prestarted_init) {
      SB_TRY(resources, TakeWithInit());
    }
    SB_TRY(resources.identity, TakeOr(identities_, [this] { return MakeIdentity(); }));
    if (want.nesting) {
      SB_TRY(resources.identity.userns, os::CreateBoundedNamespace(resources.identity.userns.get()));
    }
    if (!want.prestarted_init) {
      SB_TRY(resources.net, TakeNet(want, resources.identity));
      SB_TRY(resources.group, TakeOr(groups_, [this] { return MakeGroup(); }));
    }
    SB_TRY(resources.disk, TakeOr(disks_, [this] { return host_->disk->Create(); }));
    return {};
  };
  if (auto r = fill(); !r) {
    Discard(std::move(resources));
    return std::unexpected(std::move(r).error());
  }
  return resources;
}

bool ResourcePool::Refill() {
  if (failing_) return false;
  auto add = [this](auto& ready, auto made) {
    if (made) {
      ready.push_back(std::move(*made));
      return true;
    }
    log::Warn("making resources ahead: {}", made.error().message);
    failing_ = true;
    return false;
  };
  if (identities_.size() < depth_) return add(identities_, MakeIdentity());
  if (nets_.size() < depth_) return add(nets_, os::CreateLocalNet());
  if (groups_.size() < depth_) return add(groups_, MakeGroup());
  if (disks_.size() < depth_) return add(disks_, host_->disk->Create());
  if (with_init_.size() < depth_) return add(with_init_, MakeWithInit());
  return false;
}

bool ResourcePool::Remove(MachineResources& resources) const {
  resources.init = {};
  resources.figures = {};
  if (resources.group) {
    auto removed = resources.group->Remove();
    if (!removed && removed.error().code == Code::kConflict) return false;
    if (!removed) log::Error("control group: {}", removed.error().message);
    resources.group.reset();
  }
  if (!resources.disk.name.empty()) {
    if (auto r = host_->disk->Destroy(resources.disk); !r) log::Error("{}", r.error().message);
    resources.disk = {};
  }
  resources.net = {};
  resources.identity = {};
  return true;
}

bool ResourcePool::Sweep() {
  std::vector<MachineResources> busy;
  for (MachineResources& resources : leaving_) {
    if (!Remove(resources)) busy.push_back(std::move(resources));
  }
  leaving_ = std::move(busy);
  return leaving_.empty();
}

void ResourcePool::Clear() {
  for (MachineResources& ready : with_init_) Discard(std::move(ready));
  for (auto& group : groups_) DiscardGroup(std::move(group));
  for (DiskSlot& disk : disks_) {
    MachineResources resources;
    resources.disk = std::move(disk);
    Discard(std::move(resources));
  }
  with_init_.clear();
  groups_.clear();
  disks_.clear();
  nets_.clear();
  identities_.clear();
  if (!Sweep()) log::Warn("a spare control group is busy");
}

}  // namespace sandbar::spawner
