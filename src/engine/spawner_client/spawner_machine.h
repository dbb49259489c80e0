// One machine of the spawner's, as the server sees it, of whichever engine; and what it shares with the engine's
// object: how values become the spawner's. The loop's thread only.
#pragma once

#include <memory>
#include <string>

#include "engine/machine.h"
#include "engine/spawner_client/connection.h"
#include "engine/values.h"

namespace sandbar::engine {

std::unique_ptr<Machine> NewSpawnerMachine(std::shared_ptr<Connection> connection, std::shared_ptr<ExitState> exit,
                                           std::string id, protocol::BootResp agent, NetworkSockets network);

inline protocol::MachineLimits ToSpawner(const Limits& l) {
  return {l.vcpus, l.memory_bytes, l.pids, l.disk_bytes};
}

// Bounded as every id of the protocol is; whoever shares the beginning shares the share.
inline std::string Bounded(const std::string& owner) {
  return owner.substr(0, 120);
}

template <class T>
Result<T> Expect(SpawnerReply& reply) {
  if (auto* body = std::get_if<T>(&reply.body)) return std::move(*body);
  return Fail(Code::kProtocol, "unexpected answer of the spawner");
}

}  // namespace sandbar::engine
