#include "sandbox/drives/drives_impl.h"

#include <fmt/format.h>

#include "base/ids.h"
#include "base/log.h"
#include "sandbox/drives/drive_records.h"
#include "sandbox/project_limits.h"
#include "sandbox/shared_result.h"
#include "sandbox/validate.h"

namespace sandbar::sandbox {
namespace {

DriveView ViewOf(store::Drive drive, const std::map<std::string, store::Session>& holders) {
  DriveView view;
  if (auto it = holders.find(drive.id); it != holders.end()) {
    view.session = it->second.id;
    view.sandbox = it->second.sandbox;
  }
  view.drive = std::move(drive);
  return view;
}

Result<> SameAs(const store::Drive& drive, const DriveSpec& spec) {
  if (spec.region && *spec.region != drive.region) {
    return Fail(Code::kConflict, fmt::format("drive \"{}\" exists in region {}", drive.name, drive.region));
  }
  if (spec.max_size_bytes && *spec.max_size_bytes != drive.max_size_bytes) {
    return Fail(Code::kConflict,
                fmt::format("drive \"{}\" exists with maxSizeBytes {}", drive.name, drive.max_size_bytes));
  }
  return {};
}

}  // namespace

Task<DriveView> DrivesImpl::Make(Scope scope, std::string name, DriveSpec spec) {
  auto work = MakeNow(std::move(scope), std::move(name), std::move(spec));
  co_return co_await RunToEnd(&core_->tasks, std::move(work));
}

Task<DriveView> DrivesImpl::MakeNow(Scope scope, std::string name, DriveSpec spec) {
  if (scope.team.empty() || scope.project.empty()) co_return Fail(Code::kBadRequest, "projectId: is required");
  SB_CO_TRYV(CheckDriveName(name));
  store::Drive wanted;
  if (spec.region) SB_CO_TRYV(CheckRegionName(*spec.region));
  if (spec.max_size_bytes) SB_CO_TRYV(CheckDriveSize(*spec.max_size_bytes));
  wanted.id = NewId("drv_");
  wanted.team = scope.team;
  wanted.project = scope.project;
  wanted.name = std::move(name);
  wanted.region = spec.region.value_or(wanted.region);
  wanted.max_size_bytes = spec.max_size_bytes.value_or(core_->config.drive_bytes);
  wanted.created_at = wanted.updated_at = NowMs();
  auto insert = [wanted, spec](store::Store& store) -> Result<DriveView> {
    SB_TRY(auto found, store.FindDrive(wanted.team, wanted.project, wanted.name));
    if (!found) SB_TRYV(store.InsertDrive(wanted));
    if (found) SB_TRYV(SameAs(*found, spec));
    SB_TRY(auto holders, DriveHolders(store));
    DriveView view = ViewOf(found.value_or(wanted), holders);
    view.created = !found;
    return view;
  };
  SB_CO_TRY(auto view, co_await core_->Combined(std::move(insert)));
  // One that was never written may be a row without a directory, when a server died right here.
  if (view.drive.state != 0 || !view.session.empty()) co_return view;
  const engine::Owner owner = DiskOwner(*core_, view.drive.team, view.drive.project);
  auto made = co_await core_->deps.engine->CreateDrive(view.drive.id, view.drive.max_size_bytes, owner);
  if (made) co_return view;
  if (view.created && !core_->closing) {
    auto forgotten = co_await core_->directory->ForgetDrive(view.drive.id);
    if (!forgotten) log::Error("drive {}: {}", view.drive.id, forgotten.error().message);
  }
  co_return std::unexpected(std::move(made).error());
}

Task<Page<DriveView>> DrivesImpl::List(Scope scope, ListQuery query) {
  SB_CO_TRY(auto filter, CheckDriveList(scope, query));
  auto list = [filter = std::move(filter)](store::Store& store) -> Result<Page<DriveView>> {
    SB_TRY(auto listing, store.ListDrives(filter));
    SB_TRY(auto holders, DriveHolders(store));
    Page<DriveView> page;
    for (store::Drive& drive : listing.items) page.items.push_back(ViewOf(std::move(drive), holders));
    page.next = std::move(listing.next);
    return page;
  };
  co_return co_await core_->Combined(std::move(list));
}

Task<DriveView> DrivesImpl::Delete(Scope scope, std::string name) {
  auto remove = [scope = std::move(scope), name = std::move(name)](store::Store& store) -> Result<DriveView> {
    SB_TRY(auto found, store.FindDrive(scope.team, scope.project, name));
    if (!found) return Fail(Code::kNotFound, "drive not found: " + name.substr(0, 64));
    SB_TRY(auto holders, DriveHolders(store));
    if (auto holder = holders.find(found->id); holder != holders.end()) {
      return Fail(Code::kConflict, fmt::format("drive \"{}\" is attached to sandbox \"{}\" (session {}): stop it first",
                                               found->name, holder->second.sandbox, holder->second.id));
    }
    auto mark = [](store::Drive& drive) -> Result<> {
      drive.deleted = true;
      drive.updated_at = NowMs();
      return {};
    };
    SB_TRY(auto drive, store.EditDrive(found->id, mark));
    return ViewOf(std::move(drive), holders);
  };
  SB_CO_TRY(auto view, co_await core_->Combined(std::move(remove)));
  housekeeper_->Wake();
  co_return view;
}

Task<> DrivesImpl::Tidy() {
  SB_CO_TRY(auto on_disk, co_await core_->deps.engine->ListDrives());
  auto find = [on_disk = std::move(on_disk)](store::Store& store) { return UnusedDrives(store, on_disk); };
  SB_CO_TRY(auto unused, co_await core_->Combined(std::move(find)));
  for (auto& name : unused) {
    SB_CO_TRYV(co_await core_->deps.engine->RemoveDrive(std::move(name)));
  }
  co_return Result<>{};
}

}  // namespace sandbar::sandbox
