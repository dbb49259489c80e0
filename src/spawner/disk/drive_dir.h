// The drives of a disk: <store>/drives/<name>, each with upper/ (what users see) and work/ (overlay's scratch), and
// drive snapshots beside them under names of their own. Both kinds of disk use it. Single thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"

namespace sandbar::spawner {

class DriveDir {
 public:
  // `path` is where `dir` is reachable.
  DriveDir(std::string path, Fd dir) : path_(std::move(path)), dir_(std::move(dir)) {}

  static Result<> Check(const std::string& name);
  // Makes upper/ and work/ where they are missing.
  static Result<> Fill(int drive);
  // Gives a drive that was never used to this user (ids as they are inside).
  static Result<> Claim(const std::string& path, uid_t uid, gid_t gid);
  // The drive's limit, noted beside its contents, where no guest can write.
  static Result<> SetSize(int drive, uint64_t bytes);
  static uint64_t Size(const std::string& path);
  // Whether nobody has used the drive yet.
  static bool Unused(const std::string& path);
  // The name under which a drive snapshot is made before it is whole; no drive snapshot has such a name.
  static std::string HalfName(const std::string& snapshot) { return "." + snapshot; }

  Result<std::string> Path(const std::string& name) const;
  Result<std::vector<std::string>> List(const std::string& after, size_t max) const;
  int fd() const { return dir_.get(); }

 private:
  std::string path_;
  Fd dir_;
};

}  // namespace sandbar::spawner
