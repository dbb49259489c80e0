// Whether the server's user can reach a directory: asked before anything is started, because a server that finds out
// after it gave its rights up can only fail, and not say why.
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
