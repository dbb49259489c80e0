#include "spawner/machines/unmounts.h"

#include <sys/inotify.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <string>

namespace sandbar::spawner {

Result<std::unique_ptr<Unmounts>> Unmounts::Open() {
  Fd fd(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (!fd) return FailErrno("inotify");
  return std::unique_ptr<Unmounts>(new Unmounts(std::move(fd)));
}

Result<int> Unmounts::Watch(int root) {
  // Any event will do: the end of the filesystem is reported to every watch.
  int watch = ::inotify_add_watch(inotify_.get(), ("/proc/self/fd/" + std::to_string(root)).c_str(), IN_DELETE_SELF);
  if (watch < 0) return FailErrno("watch for the unmount");
  mounted_.insert(watch);
  return watch;
}

void Unmounts::Drain() {
  alignas(inotify_event) std::array<char, 4096> buffer{};
  for (;;) {
    ssize_t n = ::read(inotify_.get(), buffer.data(), buffer.size());
    if (n <= 0) return;
    for (size_t at = 0; at + sizeof(inotify_event) <= static_cast<size_t>(n);) {
      inotify_event event{};
      std::memcpy(&event, buffer.data() + at, sizeof event);
      // IN_IGNORED follows IN_UNMOUNT; either says that this watch is over.
      if ((event.mask & (IN_UNMOUNT | IN_IGNORED)) != 0) mounted_.erase(event.wd);
      at += sizeof event + event.len;
    }
  }
}

bool Unmounts::Gone(int watch) {
  Drain();
  return !mounted_.contains(watch);
}

void Unmounts::Forget(int watch) {
  if (mounted_.erase(watch) > 0) ::inotify_rm_watch(inotify_.get(), watch);
}

}  // namespace sandbar::spawner
