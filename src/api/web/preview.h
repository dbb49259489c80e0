// Previews: requests for sb-<label>.<preview domain> go to the server that listens on the route's port in its sandbox.
// Single loop; owned by Api. Unauthenticated by design, like the hosted service: the label is the secret, and a route
// may have a token besides. Nothing of the API is served here: no route, no credential, no CORS.
//
// The guest's server sees the Host that the client sent when it is under ".localhost", which development servers accept
// as they are (Vite, webpack, Next, Rails, Django), and "<label>.localhost" under any other domain, which they would
// refuse. X-Forwarded-Host has the name that the client used.
//
// A protected route wants ?sandbar_token=… once (it becomes a cookie of this host alone), or the header
// X-Sandbar-Preview-Token. Neither of them, nor an API token, reaches the guest (web/preview_secrets.h).
#pragma once

#include <map>
#include <string>

#include "api/shares.h"
#include "api/vercel/shapes.h"
#include "async/task.h"
#include "http/server.h"
#include "ingress/ingress.h"
#include "sandbox/roles.h"

namespace sandbar::api {

struct ApiConfig;

// Where clients reach previews, by the configuration.
PreviewUrls PreviewUrlsOf(const ApiConfig& config);

// `target` without the parameter that carries a route's token, which goes to *token.
std::string TakeToken(std::string_view target, std::string* token);

class Previews {
 public:
  // Requests under way: a guest that never answers must leave room for its neighbours and for the API.
  static constexpr size_t kPerRoute = 128;
  static constexpr size_t kInAll = 1536;

  Previews(const sandbox::Roles* domain, const ApiConfig* config) : domain_(domain), config_(config) {}

  Task<> Serve(http::HttpExchange* x, std::string label);

  ingress::IngressLimits limits;

 private:
  class Place;
  Task<> ServeRoute(http::HttpExchange* x, sandbox::RouteTarget target);
  Task<> Forward(http::HttpExchange* x, sandbox::RouteTarget target);
  Task<> AwaitWithdrawal(store::PortRoute route);
  std::string Scheme() const;

  const sandbox::Roles* domain_;
  const ApiConfig* config_;
  std::map<std::string, size_t> open_;  // by route
  Shares shares_{kInAll};
};

}  // namespace sandbar::api
