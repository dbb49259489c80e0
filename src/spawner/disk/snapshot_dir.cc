#include "spawner/disk/snapshot_dir.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <unistd.h>

#include <algorithm>

#include "base/ids.h"
#include "base/log.h"
#include "os/openat.h"
#include "spawner/disk/layers.h"

namespace sandbar::spawner {

namespace {

constexpr size_t kMaxName = 64;

std::unexpected<Error> NoSuchSnapshot(const std::string& snapshot) {
  return Fail(Code::kNotFound, "snapshot " + snapshot + " is not on this host");
}

}  // namespace

Result<> SnapshotDir::Take(int machines, const std::string& name, const std::string& snapshot) const {
  if (!ValidId(snapshot, kMaxName)) return Fail(Code::kBadRequest, "bad snapshot name");
  if (::renameat2(machines, name.c_str(), dir_.get(), snapshot.c_str(), RENAME_NOREPLACE) == 0) return {};
  if (errno == EEXIST) return Fail(Code::kConflict, "snapshot " + snapshot + " exists already");
  return FailErrno("publish snapshot " + snapshot);
}

Result<std::string> SnapshotDir::Layer(const std::string& snapshot) const {
  if (!ValidId(snapshot, kMaxName)) return NoSuchSnapshot(snapshot);
  auto upper = os::OpenInside(dir_.get(), snapshot + "/upper", O_PATH | O_DIRECTORY);
  if (!upper) return NoSuchSnapshot(snapshot);
  return path_ + "/" + snapshot + "/upper";
}

Result<Fd> SnapshotDir::OpenManifest(const std::string& snapshot, bool fresh) const {
  if (!ValidId(snapshot, kMaxName)) return NoSuchSnapshot(snapshot);
  if (!fresh) return os::OpenInside(manifests_.get(), snapshot, O_RDONLY);
  // Another file each time: a scan for a daemon that has died may still be writing to the old one.
  RemoveManifest(snapshot);
  return os::OpenInside(manifests_.get(), snapshot, O_RDWR | O_CREAT | O_EXCL, 0600);
}

void SnapshotDir::RemoveManifest(const std::string& snapshot) const {
  // It has a line for every file. One that stays is overwritten when the name comes back, which it does not.
  if (auto r = GiveUp(manifests_.get(), snapshot); !r) log::Warn("{}", r.error().message);
}

Result<> GiveUp(int dir, const std::string& name) {
  const std::string gone = NewLabel(kGone, 16);
  if (::renameat(dir, name.c_str(), dir, gone.c_str()) != 0 && errno != ENOENT) return FailErrno("remove " + name);
  return {};
}

Result<std::vector<std::string>> SnapshotDir::List(const std::string& after, size_t max) const {
  SB_TRY(auto names, os::ListDir(dir_.get()));
  std::erase_if(names, [](const std::string& name) { return name.starts_with('.'); });
  std::ranges::sort(names);
  names.erase(names.begin(), std::ranges::upper_bound(names, after));
  if (names.size() > max) names.resize(max);
  return names;
}

}  // namespace sandbar::spawner
