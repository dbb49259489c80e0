// `sandbar serve`: the one place that builds the concrete objects and wires them. Starts as root, ends up as an
// unprivileged process with one loop thread that owns everything but the blocking pools.
#pragma once

#include "base/result.h"
#include "cli/env.h"
#include "cli/options.h"

namespace sandbar::daemon {

// Runs until told to stop. SIGTERM and SIGINT leave the machines running for the next daemon (an upgrade is a restart);
// SIGUSR1, --ephemeral and a closed lifeline stop them.
int Serve(const cli::Options& options, const cli::ServeCommand& flags);

// A token for SDK programs, signed with the data directory's key.
Result<cli::SdkToken> MintSdkToken(const std::string& data);

}  // namespace sandbar::daemon
