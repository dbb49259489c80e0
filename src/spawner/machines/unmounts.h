// Tells when a filesystem is really unmounted: the last process of a machine is gone before its root filesystem is, and
// the writable layer may be frozen only after that. One inotify instance for all (there are few per user). Single
// thread; nothing here waits.
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
  // Every watch is given back.
  void Forget(int watch);

 private:
  explicit Unmounts(Fd fd) : inotify_(std::move(fd)) {}
  void Drain();

  Fd inotify_;
  std::set<int> mounted_;
};

}  // namespace sandbar::spawner
