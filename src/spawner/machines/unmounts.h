// Tells when the kernel has unmounted a filesystem. The last process of a machine is gone before its root filesystem
// is, and the writable layer may become a snapshot only after that. One inotify instance serves all machines, because a
// user has few of them. Single thread; no call waits.
#pragma once

#include <memory>
#include <set>

#include "base/fd.h"
#include "base/result.h"

namespace sandbar::spawner {

class Unmounts {
 public:
  static Result<std::unique_ptr<Unmounts>> Open();
  // `root`: an fd of the filesystem's root. Does not keep it mounted.
  Result<int> Watch(int root);
  bool Gone(int watch);
  // Call it once for every watch.
  void Forget(int watch);

 private:
  explicit Unmounts(Fd fd) : inotify_(std::move(fd)) {}
  void Drain();

  Fd inotify_;
  std::set<int> mounted_;
};

}  // namespace sandbar::spawner
