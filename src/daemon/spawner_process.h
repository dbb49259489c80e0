// The privileged half as seen from the daemon's start and end: starting sandbar-spawner (it outlives us), finding one
// that an earlier daemon left, and asking it to end with everything it holds. Blocking calls, outside the loop.
#pragma once

#include <string>

#include "base/fd.h"
#include "base/result.h"
#include "daemon/config.h"
#include "daemon/data_dir.h"

namespace sandbar::daemon {

std::string SpawnerSocket(const std::string& data);

struct SpawnerRef {
  Fd pidfd;              // readable once the process is gone
  Fd connection;         // an ephemeral spawner ends when it has none: keep it until the engine has its own
  bool adopted = false;  // it was there already
};

// Root. Adopts the spawner of this data directory or starts one and waits until it accepts connections.
Result<SpawnerRef> EnsureSpawner(const Config& config, Identity daemon);

// Asks for the end of every machine and of the spawner itself. It listens to root and to the daemon's user only.
Result<> RequestSpawnerShutdown(const std::string& data);
// The same by the connection that was made when we were root, for a server whose user cannot reach the socket.
Result<> StopSpawner(const std::string& data, const SpawnerRef& spawner);
// True when the process is gone within the time.
bool WaitGone(const Fd& pidfd, int timeout_ms);

// `sandbar down`: stops server and spawner of a data directory, whichever of them live. False: neither did.
Result<bool> ShutDown(const std::string& data);
// Stops the server alone; its machines go on. False: none was running.
Result<bool> Leave(const std::string& data);

}  // namespace sandbar::daemon
