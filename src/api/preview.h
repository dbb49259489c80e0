// Previews: requests for sb-<label>.<preview domain> go to the server that listens on the route's port in its sandbox.
// Single loop; owned by Api. Unauthenticated by design, like the hosted service: the label is the secret, and a route
// may have a token besides. Nothing of the API is served here: no route, no credential, no CORS.
//
// The guest's server sees the Host that the client sent when it is under ".localhost", which development servers accept
// as they are (Vite, webpack, Next, Rails, Django), and "<label>.localhost" under any other domain, which they would
// refuse. X-Forwarded-Host has the name that the client used.
//
// A protected route wants ?sandbar_token=… once (it becomes a cookie of this host alone), or the header
// X-Sandbar-Preview-Token. Neither of them, nor a valid API token, reaches the guest.
#pragma once

#include <map>
#include <string>

#include "api/vercel_shapes.h"
#include "async/task.h"
#include "net/http_server.h"
#include "net/ingress.h"
#include "sandbox/service.h"

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
  static constexpr size_t kInAll = 2048;

  Previews(sandbox::Service* service, const ApiConfig* config) : service_(service), config_(config) {}

  Task<> Serve(net::HttpExchange* x, std::string label);

  net::IngressLimits limits;

 private:
  class Place;
  Task<> Forward(net::HttpExchange* x, sandbox::RouteTarget target);
  // Removes what is ours from the client's headers.
  Task<std::vector<net::Header>> GuestHeaders(const net::HttpRequest* request);
  Task<bool> IsApiToken(net::Header authorization);
  std::string Scheme() const;

  sandbox::Service* service_;
  const ApiConfig* config_;
  std::map<std::string, size_t> open_;
  size_t open_in_all_ = 0;
};

}  // namespace sandbar::api
