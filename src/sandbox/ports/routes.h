// Published ports of a sandbox: each has a route with a name of its own in preview URLs.
// Pure functions, any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "store/records.h"

namespace sandbar::sandbox {

// One route per port, in that order. A port that had a route keeps it, name and token; the others get a name that
// nobody can guess (62 random bits) and that is never given out again.
std::vector<store::PortRoute> MakeRoutes(const std::vector<int>& ports, const std::vector<store::PortRoute>& before);

const store::PortRoute* FindPort(const std::vector<store::PortRoute>& routes, int port);

// Compares with the hash that the route keeps, in constant time.
bool RouteTokenMatches(const store::PortRoute& route, const std::string& presented);

}  // namespace sandbar::sandbox
