// The output of a session's commands on disk, held to a budget: CommandLog bounds one command, this bounds how much a
// session of many commands leaves. Blocks; runs on the pool for files.
//
//   SB_TRYV(TrimLogs(core.LogDir(session), core.config.log_session_bytes, {"cmd_running"}));
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "base/result.h"

namespace sandbar::sandbox {

// Drops logs of commands that are not in `running`, those that ended first first, until all of them together take no
// more than `budget` bytes. A dropped log says how many bytes are missing. Readers that are under way find a gap.
Result<> TrimLogs(const std::string& session_dir, uint64_t budget, const std::set<std::string>& running);

}  // namespace sandbar::sandbox
