// The snapshots of a disk: <store>/snapshots/<name>/upper, each a directory that was a machine's writable layer. Both
// kinds of disk use it. Single thread.
#pragma once

#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"

namespace sandbar::spawner {

// Something that was removed gets a name with this prefix, in the same directory, until Tidy has freed its space.
inline constexpr const char* kGone = ".gone-";
// Gives it such a name. Not an error when there is nothing of that name.
Result<> GiveUp(int dir, const std::string& name);

class SnapshotDir {
 public:
  // `path` is the path of `dir`; `manifests` is the directory with one manifest per snapshot.
  SnapshotDir(std::string path, Fd dir, Fd manifests)
      : path_(std::move(path)), dir_(std::move(dir)), manifests_(std::move(manifests)) {}

  // Moves `name` of `machines` here, with its scratch space. kConflict when the snapshot exists.
  Result<> Take(int machines, const std::string& name, const std::string& snapshot) const;
  Result<std::string> Layer(const std::string& snapshot) const;
  Result<std::vector<std::string>> List(const std::string& after, size_t max) const;
  Result<Fd> OpenManifest(const std::string& snapshot, bool fresh) const;
  void RemoveManifest(const std::string& snapshot) const;
  int fd() const { return dir_.get(); }
  int manifests_fd() const { return manifests_.get(); }

 private:
  std::string path_;
  Fd dir_, manifests_;
};

}  // namespace sandbar::spawner
