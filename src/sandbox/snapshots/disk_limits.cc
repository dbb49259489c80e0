#include "sandbox/snapshots/disk_limits.h"

#include <fmt/format.h>

#include "sandbox/snapshots/converter.h"

namespace sandbar::sandbox {
namespace {

constexpr uint64_t kMiB = 1ULL << 20;

bool Scanned(const std::optional<store::Layer>& layer) {
  return layer && layer->durable_at != 0;
}

}  // namespace

Task<uint64_t> DiskLimits::BytesOf(store::Snapshot snapshot, uint64_t enough) {
  if (snapshot.snapshot_layers.empty()) co_return uint64_t{0};
  const std::string name = snapshot.snapshot_layers.front();
  auto find = [name](store::Journal& journal) { return journal.FindLayer(name); };
  SB_CO_TRY(auto layer, co_await core_->Journal(std::move(find)));
  if (Scanned(layer)) co_return DiskBytes(*layer);
  if (snapshot.size_bytes <= enough) co_return snapshot.size_bytes;
  auto scanned = co_await layers_->Check(name);
  if (scanned && scanned->durable_at != 0) co_return DiskBytes(*scanned);
  if (!scanned && core_->closing) co_return std::unexpected(std::move(scanned).error());
  co_return snapshot.size_bytes;
}

Task<uint64_t> DiskLimits::InheritedBytes(store::Session row, uint64_t enough) {
  const bool copied = core_->engines.Of(row.engine).copies_snapshots;
  if (row.source_snapshot.empty() || !copied || core_->config.disk_bytes == 0) co_return uint64_t{0};
  SB_CO_TRY(auto snapshot, co_await core_->directory->FindSnapshot(row.source_snapshot));
  if (!snapshot) co_return uint64_t{0};
  co_return co_await BytesOf(*std::move(snapshot), enough);
}

Task<> DiskLimits::CheckFits(store::Snapshot snapshot) {
  const uint64_t limit = core_->config.disk_bytes;
  if (limit == 0 || FormatOf(snapshot) != engine::RootfsFormat::kDir) co_return Result<>{};
  const std::string id = snapshot.id;
  SB_CO_TRY(const uint64_t bytes, co_await BytesOf(std::move(snapshot), limit));
  if (bytes <= limit) co_return Result<>{};
  co_return Fail(Code::kBadRequest,
                 fmt::format("snapshot {} holds {} MiB, and the disk of a sandbox here has {} MiB (limits.disk_mb): "
                             "resume its sandbox, delete files there, and stop it, which makes a smaller one",
                             id, bytes / kMiB, limit / kMiB));
}

}  // namespace sandbar::sandbox
