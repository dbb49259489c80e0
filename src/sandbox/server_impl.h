// The role Server. Single loop; owned by the domain.
#pragma once

#include <string>
#include <vector>

#include "sandbox/core.h"
#include "sandbox/server.h"
#include "sandbox/sessions/active_sessions.h"

namespace sandbar::sandbox {

class ServerImpl final : public Server {
 public:
  ServerImpl(Core* core, ActiveSessions* active) : core_(core), active_(active) {}

  // At start: reads the tokens, and makes the first one.
  Task<> LoadTokens();
  ServerInfo Info() const override;
  Task<store::Token> CheckToken(std::string presented) override;

 private:
  Core* core_;
  ActiveSessions* active_;
  std::vector<store::Token> tokens_;
};

}  // namespace sandbar::sandbox
