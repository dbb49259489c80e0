#include "sandbox/ports/routes.h"

#include <algorithm>

#include "base/ids.h"
#include "crypto/digest.h"

namespace sandbar::sandbox {

const store::PortRoute* FindPort(const std::vector<store::PortRoute>& routes, int port) {
  auto it = std::ranges::find(routes, port, &store::PortRoute::port);
  return it == routes.end() ? nullptr : &*it;
}

std::vector<store::PortRoute> MakeRoutes(const std::vector<int>& ports, const std::vector<store::PortRoute>& before) {
  std::vector<store::PortRoute> out;
  for (int port : ports) {
    const store::PortRoute* kept = FindPort(before, port);
    out.push_back(kept != nullptr ? *kept : store::PortRoute{port, NewLabel("sb-", 12), ""});
  }
  return out;
}

bool RouteTokenMatches(const store::PortRoute& route, const std::string& presented) {
  return crypto::SameSecret(route.token, crypto::Sha256Hex(presented));
}

}  // namespace sandbar::sandbox
