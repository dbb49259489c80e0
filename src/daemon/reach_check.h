// Checks that the server's user can reach a directory, before anything is started: a server that has already dropped
// its rights could only fail without naming the reason.
#pragma once

#include <string>

#include "base/result.h"
#include "daemon/data_dir.h"

namespace sandbar::daemon {

// Root. kForbidden names the directory that the user cannot enter, or with `itself` cannot read, with `fix` and the
// command that opens it. What does not exist yet is fine.
Result<> CheckReachable(const std::string& user, Identity daemon, const std::string& what, const std::string& path,
                        bool itself, const std::string& fix);

}  // namespace sandbar::daemon
