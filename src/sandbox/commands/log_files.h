// The output of commands on disk, held to a budget: CommandLog bounds one command, this bounds how much a session, or
// all sessions of a project, leave. Blocks; runs on the pool for files.
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
// Returns what each session takes afterwards. A session without logs is not an error.
Result<std::map<std::string, uint64_t>> TrimLogs(const std::string& logs_dir, const std::vector<std::string>& sessions,
                                                 uint64_t budget, const std::set<std::string>& running);
// What each session below this directory takes.
std::map<std::string, uint64_t> CountLogs(const std::string& logs_dir);

}  // namespace sandbar::sandbox
