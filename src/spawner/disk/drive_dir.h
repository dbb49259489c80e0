// The drives of a disk: <store>/drives/<name>, each with upper/ (what users see) and work/ (overlay's scratch), and the
// states of drives beside them under names of their own. What the two kinds of disk have in common. Single thread.
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
  // Gives a drive what is missing of its two directories.
  static Result<> Fill(int drive);
  // A drive that was never used belongs to nobody yet: from now on to this user (ids as they are inside).
  static Result<> Claim(const std::string& path, uid_t uid, gid_t gid);
  // How large its users may make it. Written down beside its contents, where no guest comes.
  static Result<> SetSize(int drive, uint64_t bytes);
  static uint64_t Size(const std::string& path);
  // Whether nobody has used the drive yet.
  static bool Unused(const std::string& path);
  // Where a state is made before it is whole; never the name of one.
  static std::string HalfName(const std::string& snapshot) { return "." + snapshot; }

  Result<std::string> Path(const std::string& name) const;
  Result<std::vector<std::string>> List(const std::string& after, size_t max) const;
  int fd() const { return dir_.get(); }

 private:
  std::string path_;
  Fd dir_;
};

}  // namespace sandbar::spawner
