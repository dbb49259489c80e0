#include "sandbox/snapshots/converter.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/ids.h"
#include "base/log.h"
#include "sandbox/owner.h"
#include "sandbox/sessions/pool.h"

namespace sandbar::sandbox {
namespace {

using engine::RootfsFormat;

constexpr char kPlace[] = "/mnt/drive";  // of a drive in a machine that does nothing else
constexpr std::chrono::minutes kLongest{20};
constexpr int kAtOnce = 4;  // two machines each
constexpr uint64_t kDefaultDisk = 8ULL << 30;
constexpr int kVcpus = 2;  // the default size: there may be a template of it

std::string Suffix(RootfsFormat format) {
  return "-" + std::string(FormatName(format));
}

engine::Rootfs Below(const std::vector<std::string>& image_layers, const std::string& image) {
  engine::Rootfs rootfs;
  rootfs.layers = image_layers;
  rootfs.image_digest = image.substr(image.rfind('@') + 1);
  return rootfs;
}

std::unexpected<Error> Impossible(const std::string& what, RootfsFormat have, RootfsFormat need, const Error& why) {
  if (why.code == Code::kCancelled || why.code == Code::kTooMany) return std::unexpected(why);
  return Fail(Code::kConflict, fmt::format("{} has the format \"{}\" and could not be converted to \"{}\": {}", what,
                                           FormatName(have), FormatName(need), why.message));
}

}  // namespace

std::string ConvertedName(const std::string& name, RootfsFormat format) {
  return name + Suffix(format);
}

std::string OriginalName(const std::string& name) {
  for (RootfsFormat format : {RootfsFormat::kDir, RootfsFormat::kBlock}) {
    const std::string suffix = Suffix(format);
    if (name.ends_with(suffix)) return name.substr(0, name.size() - suffix.size());
  }
  return {};
}

std::string SuccessorName(const std::string& drive) {
  return drive + "-new";
}

RootfsFormat FormatOf(const store::Snapshot& snapshot) {
  return snapshot.format == FormatName(RootfsFormat::kBlock) ? RootfsFormat::kBlock : RootfsFormat::kDir;
}

std::vector<std::string> LayersIn(const std::vector<std::string>& layers, RootfsFormat have, RootfsFormat need) {
  if (have == need || layers.empty()) return layers;
  return {ConvertedName(layers.front(), need)};
}

Task<> Converter::Forget(std::string target, Task<> work) {
  auto done = co_await std::move(work);
  converting_.erase(target);
  co_return done;
}

Task<> Converter::Once(std::string target, Task<> work) {
  auto shared = converting_[target];
  if (!shared) {
    shared = std::make_shared<SharedResult<void>>(core_->ex);
    converting_[target] = shared;
    auto all = Forget(std::move(target), std::move(work));
    tasks_.Spawn(Produce(shared, std::move(all)));
  }
  co_return co_await shared->Wait();
}

Task<std::vector<std::string>> Converter::Layers(store::Snapshot snapshot, RootfsFormat format) {
  const RootfsFormat have = FormatOf(snapshot);
  auto layers = LayersIn(snapshot.snapshot_layers, have, format);
  if (have == format) co_return layers;
  SB_CO_TRY(auto on_disk, co_await core_->deps.engine->ListSnapshots());
  const std::string target = layers.front();
  if (std::ranges::find(on_disk, target) != on_disk.end()) co_return layers;
  const std::string what = "snapshot " + snapshot.id;
  auto work = format == RootfsFormat::kBlock ? SnapshotToBlock(std::move(snapshot), target)
                                             : SnapshotToDir(std::move(snapshot), target);
  auto made = co_await Once(target, std::move(work));
  if (made) co_return layers;
  if (core_->closing) co_return std::unexpected(std::move(made).error());
  co_return Impossible(what, have, format, made.error());
}

Task<> Converter::SnapshotToBlock(store::Snapshot snapshot, std::string target) {
  auto& engine = *core_->deps.engine;
  const bool stacked = snapshot.snapshot_layers.size() > 1;
  const std::string layer = stacked ? snapshot.snapshot_layers.front() + "-flat" : snapshot.snapshot_layers.front();
  const std::string owner = OwnerOf(snapshot);
  if (stacked) SB_CO_TRYV(co_await engine.FlattenSnapshots(snapshot.snapshot_layers, layer, owner));
  auto made = co_await engine.SnapshotToBlock(layer, std::move(target), core_->config.disk_bytes, owner);
  if (stacked) {
    auto removed = co_await engine.RemoveSnapshot(layer);
    if (!removed) log::Warn("{}", removed.error().message);
  }
  co_return made;
}

Task<> Converter::SnapshotToDir(store::Snapshot snapshot, std::string target) {
  engine::Rootfs to = Below(snapshot.image_layers, snapshot.image);
  to.owner = OwnerOf(snapshot);
  engine::Rootfs from = to;
  from.snapshots = std::move(snapshot.snapshot_layers);
  const engine::Owner owner = DiskOwner(*core_, snapshot.team, snapshot.project);
  co_return co_await Through(std::move(from), std::move(to), "/", std::move(target), owner);
}

Task<> Converter::DriveToDir(store::Session session, engine::DriveMount mount, std::string target) {
  engine::Rootfs from = Below(session.image_layers, session.image);
  from.owner = OwnerOf(session);
  engine::Rootfs to = from;
  from.mounts.push_back({kPlace, mount.name, false, 0, 0});
  to.mounts.push_back({kPlace, target, true, mount.uid, mount.gid});
  const std::string id = mount.name.substr(0, mount.name.find('-'));
  SB_CO_TRY(auto drives, co_await core_->directory->AllDrives());
  const auto drive = std::ranges::find(drives, id, &store::Drive::id);
  if (drive == drives.end()) co_return Fail(Code::kNotFound, "there is no drive " + id);
  const engine::Owner owner = DiskOwner(*core_, drive->team, drive->project);
  SB_CO_TRYV(co_await core_->deps.engine->CreateDrive(std::move(target), drive->max_size_bytes, owner));
  co_return co_await Through(std::move(from), std::move(to), kPlace, "", owner);
}

Task<> Converter::Drive(store::Session session, engine::DriveMount mount, RootfsFormat format, std::string target) {
  auto& engine = *core_->deps.engine;
  // Whole before it has its name; what is left of an attempt that a crash ended goes first.
  const std::string successor = SuccessorName(mount.name);
  const std::string owner = OwnerOf(session);
  SB_CO_TRYV(co_await engine.RemoveDrive(successor));
  auto make = format == RootfsFormat::kBlock ? engine.DriveToBlock(mount.name, successor, owner)
                                             : DriveToDir(std::move(session), mount, successor);
  SB_CO_TRYV(co_await std::move(make));
  if (mount.writable) co_return co_await engine.ReplaceDrive(mount.name, successor);
  SB_CO_TRYV(co_await engine.SnapshotDrive(successor, std::move(target), owner));
  co_return co_await engine.RemoveDrive(successor);
}

Task<> Converter::Drives(store::Session session, engine::Rootfs* rootfs) {
  const RootfsFormat need = core_->engines.Of(session.engine).format;
  for (engine::DriveMount& mount : rootfs->mounts) {
    SB_CO_TRY(auto have, co_await core_->deps.engine->DriveFormat(mount.name));
    if (!have || *have == need) continue;
    std::string target = ConvertedName(mount.name, need);
    SB_CO_TRY(auto on_disk, co_await core_->deps.engine->ListDrives());
    const bool there = !mount.writable && std::ranges::find(on_disk, target) != on_disk.end();
    Result<> made;
    if (!there) {
      auto work = Drive(session, mount, need, target);
      made = co_await Once(target, std::move(work));
    }
    if (!made && core_->closing) co_return made;
    if (!made) co_return Impossible("drive " + mount.name, *have, need, made.error());
    if (!mount.writable) mount.name = std::move(target);
  }
  co_return Result<>{};
}

Task<std::unique_ptr<ConnectedMachine>> Converter::Boot(RootfsFormat format, engine::Rootfs rootfs,
                                                        engine::Owner owner) {
  const auto& engines = core_->engines.engines();
  auto usable = [format](const engine::EngineInfo& e) { return e.usable && e.format == format; };
  auto engine = std::ranges::find_if(engines, usable);
  if (engine == engines.end())
    co_return Fail(Code::kConflict, fmt::format("no engine of this server reads \"{}\"", FormatName(format)));
  // On record like machines of the pool: a start after a crash destroys them.
  store::PoolMember row{NewLabel("c-", 16), rootfs.image_digest, kVcpus, NowMs()};
  auto insert = [row](store::Journal& journal) { return journal.InsertPoolMember(row); };
  SB_CO_TRYV(co_await core_->Journal(std::move(insert)));
  engine::BootRequest request = BootOf(*core_, engine->name, kVcpus);
  request.machine_id = row.machine_id;
  request.owner = owner;
  request.deadline = kLongest;
  // What is unpacked comes from a guest: it does not get the whole disk, where others may.
  if (request.limits.disk_bytes == 0) request.limits.disk_bytes = kDefaultDisk;
  auto connected = co_await ConnectedMachine::Boot(core_, std::move(request), std::move(rootfs));
  if (connected || core_->closing) co_return connected;
  auto remove = [id = row.machine_id](store::Journal& journal) { return journal.DeletePoolMember(id); };
  auto removed = co_await core_->Journal(std::move(remove));
  if (!removed) log::Error("{}", removed.error().message);
  co_return connected;
}

Task<> Converter::Through(engine::Rootfs from, engine::Rootfs to, std::string where, std::string keep_as,
                          engine::Owner owner) {
  while (busy_ >= kAtOnce) {
    SB_CO_TRYV(co_await freed_.Wait());
  }
  ++busy_;
  auto source = co_await Boot(RootfsFormat::kBlock, std::move(from), owner);
  Result<> done;
  if (source) {
    done = co_await Fill(source->get(), std::move(to), std::move(where), std::move(keep_as), owner);
    auto ended = co_await End(*std::move(source), "");
    if (!ended) log::Warn("{}", ended.error().message);
  } else {
    done = std::unexpected(std::move(source).error());
  }
  --busy_;
  freed_.Notify();
  co_return done;
}

Task<> Converter::Fill(ConnectedMachine* source, engine::Rootfs to, std::string where, std::string keep_as,
                       engine::Owner owner) {
  SB_CO_TRY(auto target, co_await Boot(RootfsFormat::kDir, std::move(to), owner));
  auto done = co_await Carry(source, target.get(), std::move(where));
  if (!done) keep_as.clear();
  auto ended = co_await End(std::move(target), std::move(keep_as));
  if (!done) co_return done;
  co_return ended;
}

Task<> Converter::Carry(ConnectedMachine* from, ConnectedMachine* to, std::string where) {
  auto source = from->link(), target = to->link();
  if (!source || !target) co_return Fail(Code::kUnavailable, "a machine lost its agent");
  // Of its root only what it wrote: the image is below the other one too.
  std::string what = where == "/" ? "" : where;
  SB_CO_TRY(auto tree, co_await source->PackTree(std::move(what)));
  SB_CO_TRYV(co_await target->UnpackTree(std::move(where), tree.get()));
  SB_CO_TRYV(co_await target->Quiesce(std::chrono::milliseconds(0)));
  co_return Result<>{};
}

Task<> Converter::End(std::unique_ptr<ConnectedMachine> machine, std::string keep_as) {
  const std::string id = machine->id();
  if (core_->closing) {
    co_await machine->Close();
    co_return Fail(Code::kUnavailable, "the server is stopping");
  }
  auto ended = co_await machine->Destroy(keep_as);
  // The snapshot could not be made, and the machine waits to be told what else.
  Result<engine::Usage> gone = ended;
  if (!ended && !keep_as.empty()) gone = co_await machine->Destroy();
  if (gone) {
    auto remove = [id](store::Journal& journal) { return journal.DeletePoolMember(id); };
    SB_CO_TRYV(co_await core_->Journal(std::move(remove)));
  }
  if (!ended) co_return std::unexpected(std::move(ended).error());
  co_return Result<>{};
}

}  // namespace sandbar::sandbox
