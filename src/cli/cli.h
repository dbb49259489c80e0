// Entry of the command line: runs what was parsed. What needs the server's own modules (serving, images on disk, token
// minting) comes in as hooks, because this folder talks HTTP only.
#pragma once

#include <boost/json/object.hpp>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/env.h"
#include "cli/options.h"

namespace sandbar::cli {

// One setting of a running server that is not as asked. Empty values: not set.
struct Difference {
  std::string key, running, asked;
  bool needs_down = false;  // a restart is not enough
};

struct Hooks {
  std::function<int(const Options&, const ServeCommand&)> serve;
  std::function<int(const Options&, const ImageCommand&)> image;
  // Stops the server of a data directory with all its machines; false when none was running.
  std::function<Result<bool>(const std::string& data)> shut_down;
  // Stops the server alone: its sandboxes go on. False when none was running.
  std::function<Result<bool>(const std::string& data)> leave;
  // What the server of a data directory was started with: {"settings", "flags", "background"}. Root's own word.
  std::function<Result<boost::json::object>(const std::string& data)> record;
  // What these flags would change in a server with this record. Errors: they cannot be used.
  std::function<Result<std::vector<Difference>>(const Options&, const ServeCommand&, const boost::json::object& record)>
      compare;
  // A token for the SDK, signed with the data directory's key.
  std::function<Result<SdkToken>(const std::string& data)> mint_jwt;
};

int Main(const Options& options, const Hooks& hooks);

}  // namespace sandbar::cli
