#include "base/result.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/log.h"

namespace sandbar {

std::unexpected<Error> FailErrno(std::string_view what, int err, std::source_location where) {
  return std::unexpected(Error{Code::kIo, std::string(what) + ": " + std::strerror(err), err, where});
}

void CheckFailed(const char* condition, std::source_location where) {
  std::fprintf(stderr, "%s:%u: check failed: %s\n", where.file_name(), static_cast<unsigned>(where.line()), condition);
  std::abort();
}

void ReportBug(std::string_view what, std::source_location where) {
  log::Error("bug: {} ({}:{})", what, where.file_name(), where.line());
  const char* fatal = std::getenv("SANDBAR_FATAL_BUGS");
  if (fatal != nullptr && *fatal == '1') std::abort();
}

}  // namespace sandbar
