// What a sandbox's disk limit counts: all that it holds, not what its current session wrote. The engine counts what a
// machine writes; what it began with is known here, from the scan that made the snapshot durable, and until then from
// what the sessions before it wrote. Both may be too low; the spawner corrects them (spawner/disk/disk_limit_watch.h).
#include <fmt/format.h>

#include "base/log.h"
#include "sandbox/service_impl.h"
#include "sandbox/snapshots/converter.h"

namespace sandbar::sandbox {
namespace {

constexpr uint64_t kEntryBytes = 1024;  // of a file's name, owner, times and place, beside its contents
constexpr uint64_t kMiB = 1ULL << 20;

uint64_t BytesOf(const store::Layer& layer) {
  return layer.bytes + layer.files * kEntryBytes;
}

bool Scanned(const std::optional<store::Layer>& layer) {
  return layer && layer->durable_at != 0;
}

}  // namespace

Task<uint64_t> ServiceImpl::BytesOf(store::Snapshot snapshot, uint64_t enough) {
  if (snapshot.snapshot_layers.empty()) co_return uint64_t{0};
  const std::string name = snapshot.snapshot_layers.front();
  auto find = [name](store::Store& store) { return store.FindLayer(name); };
  SB_CO_TRY(auto layer, co_await core_.Db(std::move(find)));
  if (Scanned(layer)) co_return sandbox::BytesOf(*layer);
  if (snapshot.size_bytes <= enough) co_return snapshot.size_bytes;
  auto scanned = co_await CheckLayer(name);
  if (scanned && scanned->durable_at != 0) co_return sandbox::BytesOf(*scanned);
  if (!scanned && core_.closing) co_return std::unexpected(std::move(scanned).error());
  co_return snapshot.size_bytes;
}

Task<uint64_t> ServiceImpl::InheritedBytes(store::Session row, uint64_t enough) {
  const bool copied = core_.ladder.Of(row.engine).copies_snapshots;
  if (row.source_snapshot.empty() || !copied || core_.config.disk_bytes == 0) co_return uint64_t{0};
  auto find = [id = row.source_snapshot](store::Store& store) { return store.FindSnapshot(id); };
  SB_CO_TRY(auto snapshot, co_await core_.Db(std::move(find)));
  if (!snapshot) co_return uint64_t{0};
  co_return co_await BytesOf(*std::move(snapshot), enough);
}

Task<> ServiceImpl::CheckFits(store::Snapshot snapshot) {
  const uint64_t limit = core_.config.disk_bytes;
  if (limit == 0 || FormatOf(snapshot) != engine::RootfsFormat::kDir) co_return Result<>{};
  const std::string id = snapshot.id;
  SB_CO_TRY(const uint64_t bytes, co_await BytesOf(std::move(snapshot), limit));
  if (bytes <= limit) co_return Result<>{};
  co_return Fail(Code::kBadRequest,
                 fmt::format("snapshot {} holds {} MiB, and the disk of a sandbox here has {} MiB (limits.disk_mb): "
                             "resume its sandbox, delete files there, and stop it, which makes a smaller one",
                             id, bytes / kMiB, limit / kMiB));
}

Task<> ServiceImpl::CorrectLimits(store::Layer layer) {
  if (layer.durable_at == 0 || core_.config.disk_bytes == 0) co_return Result<>{};
  std::vector<std::shared_ptr<Session>> standing;
  for (const auto& [id, live] : sessions_) {
    const store::Session& row = live.session->row();
    const bool on_it = !row.snapshot_layers.empty() && row.snapshot_layers.front() == layer.name;
    if (on_it && core_.ladder.Of(row.engine).copies_snapshots) standing.push_back(live.session);
  }
  for (const auto& session : standing) SB_CO_TRYV(co_await session->SetInherited(sandbox::BytesOf(layer)));
  co_return Result<>{};
}

}  // namespace sandbar::sandbox
