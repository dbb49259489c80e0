// Starting `sandbar serve` from a client command: in the background for `up`, embedded for `run`.
// The child reports its address on a pipe when it answers; an embedded one also holds the read end of a pipe whose
// closing (our exit, however it comes) makes it stop every machine and leave.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "cli/options.h"
#include "cli/server_endpoint.h"

namespace sandbar::cli {

struct StartedServer {
  ServerRef server;
  pid_t pid = -1;
  Fd lifeline;      // embedded only: keep it open as long as the server shall live
  std::string log;  // where its output goes
};

// The words of a command line that say the same.
std::vector<std::string> FlagWords(const ServeCommand& serve);

// Blocks until the server answers. On failure the message carries the end of its log.
Result<StartedServer> StartBackground(const Options& options, const ServeCommand& serve);
// A server of its own with a fresh data directory and a free port.
Result<StartedServer> StartEmbedded(const Options& options);
// Closes the lifeline and waits until the server and its machines are gone.
void StopEmbedded(StartedServer* started);

// Directory of the running program, e.g. /opt/sandbar/bin.
std::string ProgramDirectory();

}  // namespace sandbar::cli
