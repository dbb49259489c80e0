// The role Ports: published ports of a sandbox, for previews and tunnels. Single loop.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "async/task.h"
#include "base/fd.h"
#include "sandbox/scope.h"
#include "store/records.h"

namespace sandbar::http {
struct Traffic;  // http/byte_stream.h
}

namespace sandbar::sandbox {

// The sandbox and port that a preview's name belongs to.
struct RouteTarget {
  std::string team, project, sandbox, session;
  store::PortRoute route;
};

// A connection into a machine, and the counter of its bytes.
struct DialledPort {
  Fd fd;
  std::shared_ptr<http::Traffic> traffic;
};

// An unknown name is kNotFound, a stopped machine kStopped or kStopping, and a port without a server kUnavailable.
class Ports {
 public:
  virtual ~Ports() = default;
  // The name itself is the secret, so this call takes no Scope.
  virtual Task<RouteTarget> FindRoute(std::string subdomain) = 0;
  // Reaches servers on 127.0.0.1 and ::1, whatever the network policy.
  virtual Task<DialledPort> Dial(Scope scope, std::string session, int port) = 0;
  // Visitors of the route need this token from now on; nullopt: no token. Only its hash is kept.
  virtual Task<store::PortRoute> SetToken(Scope scope, std::string name, int port,
                                          std::optional<std::string> token) = 0;
};

}  // namespace sandbar::sandbox
