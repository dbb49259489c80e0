// The role Ports: routes are fields of the sandbox's record, connections go to the machine. Single loop; owned by the
// domain.
#pragma once

#include "sandbox/core.h"
#include "sandbox/ports/ports.h"
#include "sandbox/records.h"

namespace sandbar::sandbox {

class PortsImpl final : public Ports {
 public:
  PortsImpl(Core* core, Records* records) : core_(core), records_(records) {}

  Task<RouteTarget> FindRoute(std::string subdomain) override;
  Task<DialledPort> Dial(Scope scope, std::string session, int port) override;
  Task<store::PortRoute> SetToken(Scope scope, std::string name, int port, std::optional<std::string> token) override;

 private:
  Core* core_;
  Records* records_;
};

}  // namespace sandbar::sandbox
