// Entry of the command line: runs what was parsed. What needs the server's own modules (serving, images on disk, token
// minting) comes in as hooks, because this folder talks HTTP only.
#pragma once

#include <functional>
#include <string>

#include "base/result.h"
#include "cli/env.h"
#include "cli/options.h"

namespace sandbar::cli {

struct Hooks {
  std::function<int(const Options&, const ServeCommand&)> serve;
  std::function<int(const Options&, const ImageCommand&)> image;
  // Stops the server of a data directory with all its machines; false when none was running.
  std::function<Result<bool>(const std::string& data)> shut_down;
  // A token for the SDK, signed with the data directory's key.
  std::function<Result<SdkToken>(const std::string& data)> mint_jwt;
};

int Main(const Options& options, const Hooks& hooks);

}  // namespace sandbar::cli
