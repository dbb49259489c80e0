// Whole files and whole writes. Blocking; any thread.
//
//   SB_TRY(std::string text, ReadFile("/etc/hostname"));
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/result.h"

namespace sandbar {

inline constexpr size_t kLargestFile = 64 << 20;

// Reads `fd` to its end. The error begins with `name`. kTooLarge: there are more than `limit` bytes.
Result<std::string> ReadAll(int fd, size_t limit, std::string_view name = "the file");
// The error names the path. kTooLarge: the file has more than `limit` bytes.
Result<std::string> ReadFile(const std::string& path, size_t limit = kLargestFile);
// Writes all bytes; waits where `fd` does not block. The error keeps its errno (EPIPE: the reader is gone).
Result<> WriteAll(int fd, std::string_view bytes);

}  // namespace sandbar
