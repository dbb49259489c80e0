#include "sandbox/drives/drive_records.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "sandbox/snapshots/converter.h"
#include "sandbox/validate.h"

namespace sandbar::sandbox {
namespace {

constexpr size_t kMaxMounts = 4;
constexpr size_t kMaxMountPath = 1024;
constexpr uint64_t kSmallestDrive = 1ULL << 20;
constexpr uint64_t kLargestDrive = 1ULL << 53;  // what a JSON number holds exactly

std::unexpected<Error> Bad(std::string message) {
  return Fail(Code::kBadRequest, std::move(message));
}

bool Writable(const store::Mount& mount) {
  return mount.mode == "read-write";
}

// `inner` is `outer` or below it.
bool Within(std::string_view inner, std::string_view outer) {
  return inner.starts_with(outer) && (inner.size() == outer.size() || inner[outer.size()] == '/');
}

Result<> CheckMountPath(const std::string& path) {
  if (path.size() > kMaxMountPath) return Bad(fmt::format("mounts: a path has at most {} bytes", kMaxMountPath));
  bool ok = path.starts_with('/') && path.size() > 1 && !path.ends_with('/') && !path.contains("//");
  ok = ok && !path.contains('\0') && !path.contains('\n');
  for (const char* part : {"/.", "/.."}) ok = ok && !path.contains(std::string(part) + "/") && !path.ends_with(part);
  if (!ok)
    return Bad("mounts: \"" + path + "\" is not an absolute, normalised path (and / itself cannot be mounted on)");
  for (const char* own : {"/proc", "/sys", "/dev"}) {
    if (Within(path, own)) return Bad("mounts: \"" + path + "\" lies in the machine's own " + own);
  }
  return {};
}

Result<store::Drive> FindOne(store::Store& store, const store::Sandbox& sandbox, const std::string& name) {
  SB_TRY(auto drive, store.FindDrive(sandbox.team, sandbox.project, name));
  if (!drive) return Fail(Code::kNotFound, "drive not found: " + name);
  if (drive->region != sandbox.region) {
    return Bad(
        fmt::format("mounts: drive \"{}\" is in region {}, the sandbox in {}", name, drive->region, sandbox.region));
  }
  return *std::move(drive);
}

}  // namespace

Result<> CheckDriveName(const std::string& name) {
  if (name.size() > 64) return Bad("a drive's name has at most 64 characters");
  return CheckName(name);
}

Result<> CheckDriveSize(uint64_t bytes) {
  if (bytes >= kSmallestDrive && bytes <= kLargestDrive) return {};
  return Bad(fmt::format("maxSizeBytes: {} to {}, got {}", kSmallestDrive, kLargestDrive, bytes));
}

Result<> CheckMounts(const std::map<std::string, store::Mount>& mounts) {
  if (mounts.size() > kMaxMounts) return Bad(fmt::format("mounts: at most {}, got {}", kMaxMounts, mounts.size()));
  std::set<std::string> written;
  for (const auto& [path, mount] : mounts) {
    SB_TRYV(CheckMountPath(path));
    SB_TRYV(CheckDriveName(mount.drive));
    for (const auto& [other, ignored] : mounts) {
      if (other != path && Within(path, other)) return Bad("mounts: \"" + path + "\" lies in \"" + other + "\"");
    }
    if (Writable(mount) && !written.insert(mount.drive).second)
      return Bad("mounts: drive \"" + mount.drive + "\" is mounted read-write twice");
  }
  return {};
}

Result<store::ListFilter> CheckDriveList(const Scope& scope, const ListQuery& query) {
  SB_TRY(auto f, CheckList(scope, query, true));
  f.sandbox.clear();
  if (query.sort_by == "name") {
    f.sort_by = store::SortBy::kName;
  } else if (query.sort_by == "updatedAt") {
    f.sort_by = store::SortBy::kUpdatedAt;
  } else if (query.sort_by != "createdAt") {
    return Bad("sortBy: one of createdAt, updatedAt, name");
  }
  f.name_prefix = query.name_prefix;
  return f;
}

std::string DriveSnapshotName(const std::string& drive, int64_t number) {
  return drive + "-" + std::to_string(number);
}

Result<std::map<std::string, store::Session>> DriveHolders(store::Journal& journal) {
  SB_TRY(auto sessions, journal.UnfinishedSessions());
  std::map<std::string, store::Session> holders;
  for (const store::Session& session : sessions) {
    for (const store::SessionMount& mount : session.mounts) {
      if (mount.writable) holders.emplace(mount.drive, session);
    }
  }
  return holders;
}

Result<> FindMounts(store::Store& store, const store::Sandbox& sandbox) {
  for (const auto& [path, mount] : sandbox.mounts) SB_TRYV(FindOne(store, sandbox, mount.drive));
  return {};
}

Result<> AttachDrives(store::Store& store, const store::Sandbox& sandbox, store::Session& session) {
  if (sandbox.mounts.empty()) return {};
  SB_TRY(auto holders, DriveHolders(store));
  for (const auto& [path, mount] : sandbox.mounts) {
    SB_TRY(auto drive, FindOne(store, sandbox, mount.drive));
    const bool writable = Writable(mount);
    if (auto holder = holders.find(drive.id); writable && holder != holders.end()) {
      return Fail(Code::kConflict, fmt::format("drive \"{}\" is attached read-write to sandbox \"{}\" (session {})",
                                               drive.name, holder->second.sandbox, holder->second.id));
    }
    if (!writable && drive.state == 0) {
      return Fail(Code::kDriveEmpty,
                  fmt::format("drive \"{}\" has no contents to show yet: they are there when a session that mounted it "
                              "read-write has stopped",
                              drive.name));
    }
    session.mounts.push_back({path, drive.id, writable, writable ? drive.state + 1 : drive.state});
  }
  return {};
}

Result<std::vector<std::string>> UnusedDrives(store::Store& store, const std::vector<std::string>& on_disk) {
  SB_TRY(auto drives, store.AllDrives());
  SB_TRY(auto running, store.UnfinishedSessions());
  std::set<std::string> known, needed;
  for (const store::Drive& drive : drives) {
    known.insert(drive.id);
    if (drive.deleted) continue;
    needed.insert(drive.id);
    needed.insert(DriveSnapshotName(drive.id, drive.state));
  }
  for (const store::Session& session : running) {
    for (const store::SessionMount& mount : session.mounts) {
      needed.insert(mount.drive);
      needed.insert(DriveSnapshotName(mount.drive, mount.state));
      needed.insert(SuccessorName(mount.drive));
      needed.insert(SuccessorName(DriveSnapshotName(mount.drive, mount.state)));
    }
  }
  std::vector<std::string> unused;
  for (const std::string& name : on_disk) {
    const bool needed_here = needed.contains(name) || needed.contains(OriginalName(name));
    if (known.contains(name.substr(0, name.find('-'))) && !needed_here) unused.push_back(name);
  }
  // A row whose directories have gone has nothing left to name.
  for (const store::Drive& drive : drives) {
    auto of_drive = [&](const std::string& name) { return name.substr(0, name.find('-')) == drive.id; };
    if (drive.deleted && std::ranges::none_of(on_disk, of_drive)) SB_TRYV(store.ForgetDrive(drive.id));
  }
  return unused;
}

}  // namespace sandbar::sandbox
