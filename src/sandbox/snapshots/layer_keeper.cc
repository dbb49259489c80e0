#include "sandbox/snapshots/layer_keeper.h"

#include <algorithm>
#include <fstream>
#include <utility>

#include "base/ids.h"
#include "base/log.h"
#include "sandbox/snapshots/layer_records.h"

namespace sandbar::sandbox {

namespace {

constexpr std::chrono::minutes kLookEvery{1};
constexpr uint64_t kEntryBytes = 1024;  // of a file's name, owner, times and place, beside its contents
constexpr size_t kShown = 3;
constexpr size_t kScansAtOnce = 4;  // fewer than the spawner allows

std::string DamageOf(const engine::LayerReport& report, const std::string& digest) {
  if (report.digest != digest) return "its manifest is not the one that was written";
  if (report.differences == 0) return "";
  std::string text;
  for (size_t i = 0; i < std::min(report.first.size(), kShown); ++i) text += (i == 0 ? "" : ", ") + report.first[i];
  if (report.differences > kShown) text += " and " + std::to_string(report.differences - kShown) + " more";
  return text;
}

std::string BootId() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

// Whether it says something about the layer, and not about the moment.
bool IsDamage(const Error& error) {
  return error.code == Code::kIo || error.code == Code::kNotFound;
}

}  // namespace

uint64_t DiskBytes(const store::Layer& layer) {
  return layer.bytes + layer.files * kEntryBytes;
}

// The first scan of a layer writes its manifest, later scans compare with it.
Task<store::Layer> LayerKeeper::Scan(std::string name) {
  auto find = [name](store::Store& store) -> Result<std::pair<std::optional<store::Layer>, std::string>> {
    SB_TRY(auto known, store.FindLayer(name));
    SB_TRY(std::string owner, OwnerOfLayer(store, name));
    return std::pair(std::move(known), std::move(owner));
  };
  SB_CO_TRY(auto found_layer, co_await core_->Combined(std::move(find)));
  auto& [known, owner] = found_layer;
  store::Layer layer = known.value_or(store::Layer{.name = name});
  const bool fresh = layer.durable_at == 0;
  auto scan = fresh ? core_->deps.engine->WriteManifest(name, owner) : core_->deps.engine->CheckManifest(name, owner);
  auto report = co_await std::move(scan);
  if (!report && !IsDamage(report.error())) co_return std::unexpected(std::move(report).error());
  const bool was_good = layer.damage.empty();
  if (!report) {
    layer.damage = report.error().message;
  } else {
    if (fresh) {
      layer.digest = report->digest;
      layer.bytes = report->bytes;
      layer.files = report->files;
      layer.durable_at = NowMs();
    }
    layer.damage = DamageOf(*report, layer.digest);
    if (layer.damage.empty()) layer.verified_at = NowMs();
  }
  const bool found = was_good && !layer.damage.empty();
  auto save = [layer, fresh, found](store::Store& store) -> Result<> {
    SB_TRY(bool living, IsLiving(store, layer.name));
    if (!living) return store.DeleteLayer(layer.name);  // deleted while it was read
    if (found) log::Error("snapshot layer {} is damaged: {}", layer.name, layer.damage);
    SB_TRYV(NoteLayer(store, layer));
    return fresh && !layer.damage.empty() ? FallBack(store, layer.name) : Result<>{};
  };
  SB_CO_TRYV(co_await core_->Combined(std::move(save)));
  if (fresh) SB_CO_TRYV(co_await CorrectLimits(layer));
  co_return layer;
}

// Two scans that write one manifest would spoil it, so callers that ask meanwhile share one scan.
Task<store::Layer> LayerKeeper::Check(std::string name) {
  std::shared_ptr<SharedResult<store::Layer>> shared;
  if (auto it = checking_.find(name); it != checking_.end()) {
    shared = it->second;
  } else {
    shared = std::make_shared<SharedResult<store::Layer>>(core_->ex);
    checking_[name] = shared;
    core_->tasks.Spawn(Produce(shared, CheckNow(std::move(name))));
  }
  co_return co_await shared->Wait();
}

// Goes on when its caller has gone.
Task<store::Layer> LayerKeeper::CheckNow(std::string name) {
  auto checked = co_await Scan(name);
  checking_.erase(name);
  co_return checked;
}

Task<> LayerKeeper::CheckAll(std::vector<std::string> layers) {
  for (std::string& name : layers) {
    SB_CO_TRYV(co_await Check(std::move(name)));
  }
  co_return Result<>{};
}

// Not 410 with the protocol's code for a snapshot that is gone: clients delete a sandbox that answers so.
Task<> LayerKeeper::RefuseDamaged(store::Snapshot snapshot) {
  if (!core_->config.verify_strict) {
    if (!snapshot.damage.empty()) log::Warn("snapshot {} is used though damaged: {}", snapshot.id, snapshot.damage);
    co_return Result<>{};
  }
  SB_CO_TRYV(co_await CheckAll(snapshot.snapshot_layers));
  SB_CO_TRY(auto now, co_await core_->directory->FindSnapshot(snapshot.id));
  if (now && now->damage.empty()) co_return Result<>{};
  co_return Fail(Code::kConflict, "snapshot " + snapshot.id + " is damaged and verify = \"strict\": " +
                                      (now ? now->damage : std::string("it is gone")));
}

// Reads layers of several projects side by side, and of each project one at a time: a guest that makes its layer slow
// to read holds up no other project.
Task<> LayerKeeper::StartScans() {
  while (!core_->closing && scanning_.size() < kScansAtOnce) {
    const int64_t limit = NowMs() - core_->config.scrub_every_ms;
    NotThese except;
    except.layers = unreadable_;
    except.layers.insert(not_now_.begin(), not_now_.end());
    except.owners = scanning_;
    except.after = last_scanned_;
    auto next = [limit, except = std::move(except)](store::Store& store) -> Result<LayerToRead> {
      SB_TRY(LayerToRead layer, NextToSeal(store, except));
      return layer.name.empty() ? NextToScrub(store, limit, except) : layer;
    };
    SB_CO_TRY(LayerToRead layer, co_await core_->Combined(std::move(next)));
    if (layer.name.empty()) co_return Result<>{};
    last_scanned_ = layer.owner;
    scanning_.insert(layer.owner);
    core_->tasks.Spawn(SealOrScrub(std::move(layer.name), std::move(layer.owner)));
  }
  co_return Result<>{};
}

// A layer that cannot be read now is tried again with the next new layer, or after a while. A layer beyond the
// scanner's limits is not tried again.
Task<> LayerKeeper::SealOrScrub(std::string name, std::string owner) {
  co_await asio::this_coro::throw_if_cancelled(false);
  auto checked = co_await Check(name);
  scanning_.erase(owner);
  if (!checked && !core_->closing) {
    log::Warn("snapshot layer {} was not checked: {}", name, checked.error().message);
    if (checked.error().code == Code::kUnsupported) unreadable_.insert(name);
    not_now_.insert(std::move(name));
  }
  loop_.Wake();
  co_return Result<>{};
}

Task<> LayerKeeper::Run() {
  co_await asio::this_coro::throw_if_cancelled(false);
  const int64_t wait = std::min<int64_t>(std::chrono::milliseconds(kLookEvery).count(), core_->config.scrub_every_ms);
  int64_t retried_at = NowMs();
  while (!core_->closing) {
    if (std::exchange(retry_, false) || NowMs() - retried_at >= wait) {
      not_now_.clear();
      retried_at = NowMs();
    }
    auto done = co_await StartScans();
    if (!done && !core_->closing) log::Warn("snapshots: {}", done.error().message);
    auto again = co_await loop_.Wait(std::chrono::milliseconds(wait));
    if (!again) break;
  }
  co_return Result<>{};
}

Task<> LayerKeeper::CheckAtStart() {
  SB_CO_TRY(auto names, co_await core_->deps.engine->ListSnapshots());
  auto check = [names = std::move(names), boot = BootId()](store::Store& store) {
    const std::set<std::string> on_disk(names.begin(), names.end());
    return CheckAfterStart(store, on_disk, boot);
  };
  co_return co_await core_->Combined(std::move(check));
}

Task<> LayerKeeper::CorrectLimits(store::Layer layer) {
  if (layer.durable_at == 0 || core_->config.disk_bytes == 0) co_return Result<>{};
  const auto all = active_->All();
  for (const auto& session : all) {
    const store::Session& row = session->row();
    const bool on_it = !row.snapshot_layers.empty() && row.snapshot_layers.front() == layer.name;
    if (!on_it || !core_->engines.Of(row.engine).copies_snapshots) continue;
    SB_CO_TRYV(co_await session->SetInherited(DiskBytes(layer)));
  }
  co_return Result<>{};
}

}  // namespace sandbar::sandbox
