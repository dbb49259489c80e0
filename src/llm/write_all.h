// All of it, also where the kernel takes it in parts.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <string_view>

#include "base/result.h"

namespace sandbar::llm {

inline Result<> WriteAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FailErrno("write");
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return {};
}

}  // namespace sandbar::llm
