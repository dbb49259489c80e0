// Trims the output of commands on disk: CommandLog bounds one command, TrimLogs a session or all sessions of a project.
// Blocks; runs on the pool for files.
//
//   SB_TRYV(TrimLogs(core.LogsDir(), {session}, core.config.log_session_bytes, {"cmd_running"}));
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"

namespace sandbar::sandbox {

// Drops logs of commands that are not in `running`, those that ended first first, until all of them together take no
// more than `budget` bytes. A dropped log says how many bytes are missing. Readers that are under way find a gap.
// Returns the bytes of each session afterwards. A session without logs is not an error.
Result<std::map<std::string, uint64_t>> TrimLogs(const std::string& logs_dir, const std::vector<std::string>& sessions,
                                                 uint64_t budget, const std::set<std::string>& running);
// The bytes of each session below this directory.
std::map<std::string, uint64_t> CountLogs(const std::string& logs_dir);

}  // namespace sandbar::sandbox
