#include "sandbox/sessions/pool.h"

#include <algorithm>

#include "base/ids.h"
#include "base/log.h"
#include "sandbox/drives/drive_records.h"
#include "sandbox/owner.h"
#include "sandbox/shared_result.h"

namespace sandbar::sandbox {

using std::chrono::milliseconds;

engine::Rootfs RootfsOf(const images::Image& image) {
  engine::Rootfs rootfs;
  rootfs.layers = image.layers;
  rootfs.image_digest = image.digest;
  return rootfs;
}

engine::Rootfs RootfsOf(const store::Session& session) {
  engine::Rootfs rootfs;
  rootfs.layers = session.image_layers;
  rootfs.image_digest = session.image.substr(session.image.rfind('@') + 1);
  rootfs.snapshots = session.snapshot_layers;
  rootfs.owner = OwnerOf(session);
  for (const store::SessionMount& mount : session.mounts) {
    const std::string name = mount.writable ? mount.drive : DriveSnapshotName(mount.drive, mount.state);
    rootfs.mounts.push_back({mount.path, name, mount.writable, session.uid, session.gid});
  }
  return rootfs;
}

engine::BootRequest BootOf(const Core& core, const std::string& engine, int vcpus) {
  engine::BootRequest request;
  const engine::EngineInfo info = core.engines.Of(engine);
  request.engine = engine;
  request.format = info.format;
  request.network = info.attachment;
  request.limits.vcpus = static_cast<uint32_t>(vcpus);
  request.limits.memory_bytes = static_cast<uint64_t>(vcpus) * 2048 * (1 << 20);
  request.limits.pids = core.config.pids_per_sandbox;
  request.limits.disk_bytes = core.config.disk_bytes;
  return request;
}

std::string PinnedName(const images::Image& image) {
  std::string repo = image.name;
  const size_t colon = repo.rfind(':');
  const size_t slash = repo.rfind('/');
  if (colon != std::string::npos && (slash == std::string::npos || colon > slash)) repo.resize(colon);
  return repo + "@" + image.digest;
}

Pool::Pool(Core* core) : core_(core), changed_(core->ex), tasks_(core->ex) {}

void Pool::Start() {
  if (!core_->config.pools.empty()) tasks_.Spawn(Refill());
}

size_t Pool::ready() const {
  return static_cast<size_t>(std::count_if(members_.begin(), members_.end(), [](const auto& m) { return !m->dead; }));
}

std::unique_ptr<ConnectedMachine> Pool::Take(const images::Image& image, int vcpus) {
  for (auto it = members_.begin(); it != members_.end(); ++it) {
    Member& m = **it;
    if (m.dead || m.vcpus != vcpus || m.digest != image.digest || !m.connected->link()) continue;
    auto connected = std::move(m.connected);
    connected->Listen(nullptr);
    members_.erase(it);
    changed_.Notify();
    return connected;
  }
  return nullptr;
}

void Pool::PutBack(const images::Image& image, int vcpus, std::unique_ptr<ConnectedMachine> connected) {
  auto member = std::make_unique<Member>(this);
  member->digest = image.digest;
  member->vcpus = vcpus;
  member->connected = std::move(connected);
  member->connected->Listen(member.get());
  members_.push_back(std::move(member));
}

Task<> Pool::Refill() {
  co_await asio::this_coro::throw_if_cancelled(false);
  while (!closing_) {
    auto did = co_await Step();
    if (did && *did) continue;
    auto wake = changed_.Wait();
    // Also from time to time by itself: an image may have been rebuilt, or a failed boot may work now.
    auto wait = pause_.count() > 0 ? pause_ : milliseconds(60000);
    auto r = co_await WithTimeout(std::move(wake), wait);
    if (!r && r.error().code == Code::kCancelled) break;
  }
  co_return Result<>{};
}

Task<bool> Pool::Step() {
  auto dead = std::find_if(members_.begin(), members_.end(), [](const auto& m) { return m->dead; });
  if (dead != members_.end()) {
    auto member = std::move(*dead);
    members_.erase(dead);
    co_await Remove(std::move(member));
    co_return true;
  }
  for (const auto& target : core_->config.pools) {
    if (holds_ > 0 || closing_) co_return false;
    SB_CO_TRY(auto image, co_await Resolve(target));
    int have = 0;
    for (auto& m : members_) {
      if (m->vcpus == target.vcpus && m->digest == image.digest) ++have;
    }
    if (have >= target.count || holds_ > 0 || closing_) continue;
    auto added = co_await Add(target);
    if (!added && !closing_) {
      log::Warn("pool: {}", added.error().message);
      pause_ = std::clamp(pause_ * 2, milliseconds(1000), milliseconds(60000));
      co_return false;
    }
    pause_ = milliseconds(0);
    co_return added.has_value();
  }
  co_return false;
}

Task<images::Image> Pool::Resolve(PoolTarget target) {
  auto resolve = [images = core_->deps.images, target = std::move(target)] {
    return target.runtime.empty() ? images->ResolveImage(target.image) : images->ResolveRuntime(target.runtime);
  };
  co_return co_await core_->Files(std::move(resolve));
}

Task<> Pool::Add(PoolTarget target) {
  SB_CO_TRY(auto image, co_await Resolve(target));
  store::PoolMember row{NewLabel("p-", 16), PinnedName(image), target.vcpus, NowMs()};
  auto insert = [row](store::Journal& journal) { return journal.InsertPoolMember(row); };
  SB_CO_TRYV(co_await core_->Journal(std::move(insert)));
  engine::BootRequest request = BootOf(*core_, core_->engines.default_engine().name, target.vcpus);
  request.machine_id = row.machine_id;
  auto rootfs = RootfsOf(image);
  auto connected = co_await ConnectedMachine::Boot(core_, std::move(request), std::move(rootfs));
  if (connected) {
    PutBack(image, target.vcpus, *std::move(connected));
    co_return Result<>{};
  }
  if (!core_->closing) {
    auto remove = [id = row.machine_id](store::Journal& journal) { return journal.DeletePoolMember(id); };
    auto removed = co_await core_->Journal(std::move(remove));
    if (!removed) log::Error("pool: {}", removed.error().message);
  }
  co_return std::unexpected(std::move(connected).error());
}

Task<> Pool::Remove(std::unique_ptr<Member> member) {
  const std::string id = member->connected->id();
  auto destroyed = co_await member->connected->Destroy();
  // Without the row nobody would destroy it at the next start.
  if (!destroyed) co_return std::unexpected(std::move(destroyed).error());
  auto remove = [id](store::Journal& journal) { return journal.DeletePoolMember(id); };
  co_return co_await core_->Journal(std::move(remove));
}

Task<> Pool::Drain() {
  closing_ = true;
  co_await tasks_.Close();
  Result<> out;
  while (!members_.empty()) {
    auto member = std::move(members_.front());
    members_.pop_front();
    auto r = co_await Remove(std::move(member));
    if (!r) out = std::move(r);
  }
  co_return out;
}

asio::awaitable<void> Pool::Close() {
  closing_ = true;
  co_await tasks_.Close();
  for (auto& m : members_) co_await m->connected->Close();
  members_.clear();
}

}  // namespace sandbar::sandbox
