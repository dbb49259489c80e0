// The HTTP front: routing, auth, JSON shapes and streaming over the domain (sandbox::Roles). Speaks the Vercel
// Sandbox protocol (v1, v2..v4), a small native API under /x/v1, and MCP under /mcp.
// Single loop. The domain, the catalog and the server that calls Handle are owned by the daemon and outlive it.
//
//   Api api(&domain->roles(), &catalog, config);
//   auto server = ListenHttp(ex, host, port, options, [&](HttpExchange* x) { return api.Handle(x); },
//                            [&](const Error& e) { return api.OnError(e); });
//   api.SetPort((*server)->port());     // when port 0 picked one
//   …
//   co_await server->Close(), then api.Close()
//
// Every request passes, in this order: Host and Origin (web/web_guard.h), the route table (routes.h), the token and its
// scope (auth.h), the handler (handlers.h); what fails becomes {"error":{"code","message"}} by errors.h.
//
// A Host of the form sb-….<preview domain> is a preview and goes to a server in a sandbox (web/preview.h), never to a
// route.
//
// What does not exist yet (interactive shells) is refused with 422 "unsupported", never echoed.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "api/routes.h"
#include "async/task.h"
#include "base/result.h"
#include "http/server.h"
#include "images/images.h"
#include "mcp/tools.h"
#include "sandbox/roles.h"

namespace sandbar::api {

class CreateAnswers;
class DeviceLogins;
class FreshShells;
class TerminalTickets;
class McpCalls;
class Previews;
class Shares;
class WebGuard;

// Of one unit; so many units are free.
struct Price {
  double each = 0, free = 0;
};
struct Prices {
  std::string currency;  // empty: nothing is priced
  Price cpu_hour, memory_gb_hour, creation, transfer_gb;
};

struct ApiConfig {
  // Names a Host header may have, each with our port. A public name belongs here or into public_url.
  std::vector<std::string> host_names{"localhost", "127.0.0.1", "[::1]"};
  uint16_t port = 0;
  bool tls = false;
  std::string public_url;                    // where clients reach us; empty: as each request's Host says
  std::string preview_domain = "localhost";  // sb-<label>.<this> is a preview, never the API
  std::string jwt_key;                       // at least 32 bytes
  std::string version;
  std::string register_mjs;  // text of sdk/register.mjs
  std::string openapi;       // made by Api of the route table
  std::string jwks;          // public keys of what forwarded requests are signed with
  Prices prices;
  double machine_cores = 2;                             // what all sandboxes together may use of the host
  std::chrono::milliseconds stream_keep_alive{15'000};  // longest silence of a streamed answer
  mcp::Settings mcp;
};

class Api {
 public:
  Api(const sandbox::Roles* domain, images::Catalog* catalog, ApiConfig config);
  ~Api();

  void SetPort(uint16_t port);
  const ApiConfig& config() const { return config_; }

  // Answers one request. An error comes back only when an answer had begun, or the task was cancelled: cut the
  // connection then.
  Task<> Handle(http::HttpExchange* exchange);
  // For the server's own failures (parsing, limits).
  http::HttpResponse OnError(const Error& error) const;

  // Ends what goes on after its request. After the server's own Close, before destruction.
  asio::awaitable<void> Close();

  // Every route with its alternatives spelled out, without the optional /api.
  static std::vector<RouteInfo> Routes();

 private:
  Task<> Dispatch(http::HttpExchange* exchange);
  Task<> Authenticate(Call* call);
  std::string BaseUrl(const http::HttpRequest& request) const;

  const sandbox::Roles* domain_;
  images::Catalog* catalog_;
  ApiConfig config_;
  std::unique_ptr<WebGuard> guard_;
  std::unique_ptr<Previews> previews_;
  std::unique_ptr<Shares> shares_;  // of calls with a token
  std::unique_ptr<CreateAnswers> create_answers_;
  std::unique_ptr<FreshShells> fresh_shells_;
  std::unique_ptr<TerminalTickets> terminal_tickets_;
  std::unique_ptr<DeviceLogins> device_logins_;
  std::unique_ptr<McpCalls> mcp_calls_;
  std::unique_ptr<mcp::Cells> cells_;  // made with the first request, on its loop
};

}  // namespace sandbar::api
