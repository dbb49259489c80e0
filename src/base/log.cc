#include "base/log.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <ctime>

#include "base/log_level.h"
#include "base/printable.h"

namespace sandbar::log {
namespace {

// The only process-wide state of the project: where log lines go.
std::atomic<Level> g_level{Level::kInfo};
std::atomic<int> g_fd{2};

constexpr std::array<std::string_view, 4> kNames = {"debug", "info", "warn", "error"};

}  // namespace

std::optional<Level> ParseLevel(std::string_view name) {
  const auto* found = std::ranges::find(kNames, name);
  if (found == kNames.end()) return std::nullopt;
  return static_cast<Level>(found - kNames.begin());
}

void SetLevel(Level level) {
  g_level = level;
}

void SetFile(const std::string& path) {
  int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
  if (fd >= 0) g_fd = fd;
}

void Write(Level level, std::string_view line) {
  if (level < g_level.load(std::memory_order_relaxed)) return;
  auto now = std::chrono::system_clock::now();
  auto secs = std::chrono::time_point_cast<std::chrono::seconds>(now);
  auto millis = std::chrono::duration_cast<std::chrono::milliseconds>(now - secs).count();
  std::time_t t = std::chrono::system_clock::to_time_t(secs);
  std::tm tm{};
  ::gmtime_r(&t, &tm);
  // A guest-chosen name in an error must not forge a second log line or drive a terminal.
  const std::string safe = Printable(line);
  std::string out =
      fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z {} {}\n", tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday,
                  tm.tm_hour, tm.tm_min, tm.tm_sec, millis, kNames.at(static_cast<size_t>(level)), safe);
  [[maybe_unused]] ssize_t n = ::write(g_fd, out.data(), out.size());
}

}  // namespace sandbar::log
