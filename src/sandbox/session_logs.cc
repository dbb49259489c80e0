#include "sandbox/session_logs.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "sandbox/command_log.h"

namespace sandbar::sandbox {
namespace {

namespace fs = std::filesystem;

struct Log {
  fs::file_time_type ended;  // no segment has come or gone since
  std::string dir;
  uint64_t bytes = 0;
};

uint64_t SizeOf(const fs::path& dir) {
  uint64_t sum = 0;
  std::error_code ec;
  for (fs::directory_iterator it(dir, ec), end; !ec && it != end; it.increment(ec)) {
    std::error_code gone;
    const uint64_t size = it->file_size(gone);
    if (!gone) sum += size;
  }
  return sum;
}

}  // namespace

Result<> TrimLogs(const std::string& session_dir, uint64_t budget, const std::set<std::string>& running) {
  std::vector<Log> ended;
  uint64_t total = 0;
  std::error_code ec;
  for (fs::directory_iterator it(session_dir, ec), end; !ec && it != end; it.increment(ec)) {
    std::error_code gone;
    const uint64_t bytes = SizeOf(it->path());
    total += bytes;
    const auto time = it->last_write_time(gone);
    if (!gone && !running.contains(it->path().filename().string())) ended.push_back({time, it->path().string(), bytes});
  }
  if (ec) return Fail(Code::kIo, "list " + session_dir + ": " + ec.message());
  std::ranges::sort(ended, {}, &Log::ended);
  for (const Log& log : ended) {
    if (total <= budget) break;
    SB_TRY(const uint64_t left, CommandLog::Drop(log.dir));
    total -= log.bytes - std::min(left, log.bytes);
  }
  return {};
}

}  // namespace sandbar::sandbox
