// The role Server. Single loop; owned by the domain.
#pragma once

#include "sandbox/core.h"
#include "sandbox/server.h"
#include "sandbox/sessions/active_sessions.h"

namespace sandbar::sandbox {

class ServerImpl final : public Server {
 public:
  ServerImpl(Core* core, ActiveSessions* active) : core_(core), active_(active) {}

  ServerInfo Info() const override;

 private:
  Core* core_;
  ActiveSessions* active_;
};

}  // namespace sandbar::sandbox
