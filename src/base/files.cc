#include "base/files.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>

#include "base/fd.h"

namespace sandbar {

Result<std::string> ReadAll(int fd, size_t limit, std::string_view name) {
  std::string out;
  for (;;) {
    const size_t have = out.size();
    const size_t step = std::min<size_t>(limit + 1 - have, 64 << 10);
    out.resize(have + step);
    const ssize_t n = ::read(fd, out.data() + have, step);
    const int err = errno;
    out.resize(have + (n > 0 ? static_cast<size_t>(n) : 0));
    if (n < 0 && err == EINTR) continue;
    if (n < 0) return FailErrno(name, err);
    if (n == 0) return out;
    if (out.size() > limit)
      return Fail(Code::kTooLarge, std::string(name) + " is larger than " + std::to_string(limit) + " bytes");
  }
}

Result<std::string> ReadFile(const std::string& path, size_t limit) {
  Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  if (!file) return FailErrno(path);
  return ReadAll(file.get(), limit, path);
}

Result<> WriteAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) {
      // Where input and output are one terminal, what makes reading not block makes writing so too.
      pollfd room{fd, POLLOUT, 0};
      ::poll(&room, 1, -1);
      continue;
    }
    if (n < 0) return FailErrno("write");
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return {};
}

}  // namespace sandbar
