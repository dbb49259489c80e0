// The environment of a command: variables of the image, the sandbox and the caller, and the user's. Pure function.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "store/records.h"

namespace sandbar::sandbox {

// "K=V" strings, sorted. Later wins: server's defaults, image, sandbox, command; with sudo the identity wins over all.
std::vector<std::string> MakeEnvironment(const store::Session& session,
                                         const std::map<std::string, std::string>& sandbox_env,
                                         const std::map<std::string, std::string>& command_env, bool sudo);

}  // namespace sandbar::sandbox
