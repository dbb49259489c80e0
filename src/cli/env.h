// `sandbar env`: the variables that point programs of the Vercel SDK at a server. They are printed as shell lines,
// written into a .env file, or given to a program that is run.
//
//   Out(EnvLines(settings, FindRegisterMjs()));
#pragma once

#include <string>

#include "async/task.h"
#include "base/result.h"
#include "cli/options.h"
#include "cli/server_endpoint.h"
#include "wire/sdk_variables.h"

namespace sandbar::cli {

struct SdkToken {
  std::string jwt;
  std::string team, project;  // which it is bound to
};

// For `eval`; the preload is appended to NODE_OPTIONS once, however often the lines are evaluated.
std::string EnvLines(const wire::SdkSettings& settings, const std::string& register_mjs);

// For a server on this machine. `token` failed where the server's key cannot be read.
Result<int> LocalEnv(const Options& options, const EnvCommand& command, Result<SdkToken> token);
// For any other: it writes the lines itself. `options` outlives the task.
Task<int> RemoteEnv(ApiClient* api, const Options* options, EnvCommand command);

// Puts the values into a .env file: lines of the same names go, all others stay, the file ends up with mode 0600 and
// the owner that it had (a new one: that of its directory). A link is refused, never followed. NODE_OPTIONS is added
// to: options that the file had for Node.js stay, only the preload that an earlier call wrote is replaced.
Result<> WriteEnvFile(const std::string& path, const wire::Variables& values);
// `before` with the values at its end.
Result<std::string> MergeEnvFile(std::string_view before, const wire::Variables& values);

// Absolute path of sdk/register.mjs that belongs to this program; empty when it is not installed beside it.
std::string FindRegisterMjs();
// The preload with the files that it needs, in one text; empty when it is not installed.
std::string ReadRegisterMjs();

}  // namespace sandbar::cli
