#include "sandbox/commands/log_files.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "sandbox/commands/command_log.h"

namespace sandbar::sandbox {
namespace {

namespace fs = std::filesystem;

struct Log {
  fs::file_time_type ended;  // no segment has come or gone since
  std::string dir, session;
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

std::map<std::string, uint64_t> CountLogs(const std::string& logs_dir) {
  std::map<std::string, uint64_t> sessions;
  std::error_code ec;
  for (fs::directory_iterator it(logs_dir, ec), end; !ec && it != end; it.increment(ec)) {
    uint64_t& bytes = sessions[it->path().filename().string()];
    std::error_code gone;
    for (fs::directory_iterator command(it->path(), gone); !gone && command != end; command.increment(gone))
      bytes += SizeOf(command->path());
  }
  return sessions;
}

Result<std::map<std::string, uint64_t>> TrimLogs(const std::string& logs_dir, const std::vector<std::string>& sessions,
                                                 uint64_t budget, const std::set<std::string>& running) {
  std::vector<Log> ended;
  std::map<std::string, uint64_t> left;
  uint64_t total = 0;
  for (const std::string& session : sessions) {
    const std::string dir = logs_dir + "/" + session;
    std::error_code ec;
    for (fs::directory_iterator it(dir, ec), end; !ec && it != end; it.increment(ec)) {
      std::error_code gone;
      const uint64_t bytes = SizeOf(it->path());
      total += bytes;
      left[session] += bytes;
      const auto time = it->last_write_time(gone);
      if (!gone && !running.contains(it->path().filename().string()))
        ended.push_back({time, it->path().string(), session, bytes});
    }
    if (ec && ec != std::errc::no_such_file_or_directory) return Fail(Code::kIo, "list " + dir + ": " + ec.message());
    left.try_emplace(session, 0);
  }
  std::ranges::sort(ended, {}, &Log::ended);
  for (const Log& log : ended) {
    if (total <= budget) break;
    SB_TRY(const uint64_t kept, CommandLog::Drop(log.dir));
    const uint64_t freed = log.bytes - std::min(kept, log.bytes);
    total -= freed;
    left[log.session] -= freed;
  }
  return left;
}

}  // namespace sandbar::sandbox
