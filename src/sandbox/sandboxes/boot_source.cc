#include "sandbox/sandboxes/boot_source.h"

#include "base/ids.h"
#include "sandbox/sessions/pool.h"
#include "sandbox/snapshots/converter.h"

namespace sandbar::sandbox {
namespace {

template <class Row>
images::Image ImageOf(const Row& row) {
  images::Image image;
  const size_t at = row.image.rfind('@');
  image.name = row.image.substr(0, at);
  image.digest = at == std::string::npos ? "" : row.image.substr(at + 1);
  image.layers = row.image_layers;
  image.user = row.user;
  image.home = row.home;
  image.cwd = row.cwd;
  image.runtime = row.runtime;
  image.uid = row.uid;
  image.gid = row.gid;
  image.env = row.image_env;
  return image;
}

template <class Row>
void SetImage(const images::Image& image, std::string pinned_name, Row& row) {
  row.image = std::move(pinned_name);
  row.image_layers = image.layers;
  row.user = image.user;
  row.home = image.home;
  row.cwd = image.cwd;
  row.runtime = image.runtime;
  row.uid = image.uid;
  row.gid = image.gid;
  row.image_env = image.env;
}

}  // namespace

BootSource SourceOf(const store::Snapshot& snapshot) {
  return {ImageOf(snapshot), snapshot.snapshot_layers, snapshot.id, FormatOf(snapshot)};
}

BootSource SourceOf(const store::Session& session) {
  return {ImageOf(session), {}, "", std::nullopt};
}

void SetSource(const BootSource& source, engine::RootfsFormat format, store::Session& session) {
  SetImage(source.image, PinnedName(source.image), session);
  session.snapshot_layers = LayersIn(source.snapshot_layers, source.format.value_or(format), format);
  session.source_snapshot = source.snapshot;
}

void CopyImage(const store::Session& session, store::Snapshot& snapshot) {
  SetImage(ImageOf(session), session.image, snapshot);
}

Task<images::Image> BootSources::FindImage(bool v1, std::optional<std::string> image,
                                           std::optional<std::string> runtime) {
  if (v1 && !image && !runtime) runtime = core_->config.default_runtime;
  auto resolve = [images = core_->deps.images, image = image.value_or(core_->config.default_image), runtime] {
    return runtime ? images->ResolveRuntime(*runtime) : images->ResolveImage(image);
  };
  if (core_->deps.images->fresh()) co_return resolve();
  co_return co_await core_->Files(std::move(resolve));
}

Task<store::Snapshot> BootSources::FindSnapshot(Scope scope, std::string id) {
  SB_CO_TRY(auto snapshot, co_await records_->FindSnapshotIfAny(std::move(scope), id));
  const bool there = snapshot && !snapshot->deleted;
  const bool expired = there && snapshot->expires_at().value_or(INT64_MAX) <= NowMs();
  if (!there || expired) co_return Fail(Code::kSnapshotGone, "snapshot " + id.substr(0, 64) + " does not exist");
  SB_CO_TRYV(co_await layers_->RefuseDamaged(*snapshot));
  co_return *std::move(snapshot);
}

Task<BootSource> BootSources::FindFitting(Scope scope, std::string id) {
  SB_CO_TRY(auto snapshot, co_await FindSnapshot(std::move(scope), std::move(id)));
  SB_CO_TRYV(co_await disk_->CheckFits(snapshot));
  co_return SourceOf(snapshot);
}

Task<BootSource> BootSources::Find(const CreateSpec* spec, Scope scope) {
  // A snapshot has its own image. Clients send `image` or `runtime` all the same; the answer says what the sandbox got.
  if (spec->source_snapshot) co_return co_await FindFitting(std::move(scope), *spec->source_snapshot);
  BootSource source;
  SB_CO_TRY(source.image, co_await FindImage(spec->v1, spec->image, spec->runtime));
  co_return source;
}

}  // namespace sandbar::sandbox
