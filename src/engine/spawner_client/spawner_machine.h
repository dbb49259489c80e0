// A machine of the spawner as engine::Machine, for every engine, and the conversions that it shares with SpawnerEngine.
// Loop thread only.
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

// Cut to the length that ids of the protocol may have. Owners with the same first 120 bytes share one share.
inline std::string Bounded(const std::string& owner) {
  return owner.substr(0, 120);
}

template <class T>
Result<T> Expect(SpawnerReply& reply) {
  if (auto* body = std::get_if<T>(&reply.body)) return std::move(*body);
  return Fail(Code::kProtocol, "unexpected answer of the spawner");
}

}  // namespace sandbar::engine
