// The engines that the spawner has, of every class: it makes and supervises their machines, and a boot names the one it
// wants. This is the daemon's end of its socket: no privileges, single loop. Fds are taken from the spawner only (the
// peer is checked to be root or ourselves). When the spawner is gone, so are its machines: every call then fails with
// kUnavailable.
//
//   auto engine = co_await ConnectSpawnerEngine(executor, "/var/lib/sandbar/run/spawner.sock");
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "async/task.h"
#include "engine/engine.h"

namespace sandbar::engine {

// What the spawner says is in force, for `doctor`.
struct SpawnerInfo {
  std::string instance;
  std::string disk_limit;  // "none": a request with disk_bytes is refused
  std::string cgroup;
  bool copies_snapshots = false;
  std::vector<EngineInfo> engines;  // the first is the one for requests that name none
  std::vector<uint8_t> engine_ids;  // their numbers, for the spawner
};

class SpawnerEngine : public Engine {
 public:
  virtual const SpawnerInfo& spawner() const = 0;
  // Ends the spawner and every machine.
  virtual Task<> Shutdown() = 0;
};

Task<std::unique_ptr<SpawnerEngine>> OpenSpawnerEngine(asio::any_io_executor executor, std::string socket_path);
Task<std::unique_ptr<Engine>> ConnectSpawnerEngine(asio::any_io_executor executor, std::string socket_path);

}  // namespace sandbar::engine
