// Interception: the proxy reads the requests of a connection. It does so for TLS to a domain with rules, which it ends
// with a certificate of its own, and for plain HTTP under a domain policy, where every request is decided by its own
// Host. Requests are parsed, decided, rewritten and sent on as parsed, never raw; bodies stream both ways; an upgraded
// connection (WebSocket) becomes a pipe. The upstream's certificate is verified. Single loop.
//
// Files: intercept_connection (one connection), intercept_request (rules about requests), intercept_response (rules
// about responses), ca (certificates), forward_signer (tokens of forwarded requests).
//
// An Interceptor is one machine's: it has that machine's CA (derived from `seed`, so it is the same after a restart of
// the daemon; the key never leaves this process) and makes leaf certificates for ruled domains as they are asked for.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "async/task.h"
#include "egress/guarded_connect.h"
#include "egress/policy.h"
#include "egress/state.h"

namespace sandbar::egress {

// What a forwarded request says about its sandbox, and who signs it.
struct ForwardIdentity {
  std::string team, project, sandbox_id, sandbox_name;
};
class ForwardSigner {
 public:
  virtual ~ForwardSigner() = default;
  // A short-lived RS256 JWT for `audience` (a forwardURL's origin and path).
  virtual std::string Token(const ForwardIdentity& who, const std::string& audience) = 0;
  virtual std::string Jwks() const = 0;  // the public half, as JSON
  virtual std::string issuer() const = 0;
};
// `pem` is an RSA private key (MakeForwardKey makes one, for the caller to keep).
Result<std::unique_ptr<ForwardSigner>> MakeForwardSigner(const std::string& pem, std::string issuer);
std::string MakeForwardKey();

// One redirected connection that was read up to where it is clear that it must be intercepted.
struct InterceptJob {
  Stream* guest = nullptr;  // owned by the caller, who closes it
  std::string first_bytes;  // bytes already read from it, to be taken as if they came first
  bool tls = false;
  Endpoint target;               // where the guest wanted to go; only its port is used, the name decides the address
  std::string name;              // canonical; of the SNI, already let through by `policy`; empty for plain HTTP
  PolicyRef policy;              // in force when the connection was accepted
  EgressState* state = nullptr;  // counters, denials, strict switch, config
  // Called with the canonical host of each request that was let through, so that a policy change can find and cut it.
  // False: it is cut already, nothing more is sent.
  std::function<bool(const std::string&)> on_host;
};

class Interceptor {
 public:
  virtual ~Interceptor() = default;
  // Serves until either side ends. The caller cuts it by cancelling the task or by resetting the guest's stream.
  virtual Task<> Serve(InterceptJob job) = 0;
  // The CA certificate to install in the guest, PEM, name-constrained to the ruled domains of `policy` (unconstrained
  // when one of them is "*"). Same key and name for every policy.
  virtual std::string CaCertificate(const CompiledPolicy& policy) = 0;
};

struct InterceptorOptions {
  std::string seed;  // 32 secret bytes, one machine's own
  ForwardIdentity identity;
  ForwardSigner* signer = nullptr;  // outlives it; null: forwardURL answers 502
  std::string upstream_ca_file;     // trusted besides the system's authorities
  // Where requests are decided whose matchers take long; outlives it. Null: such requests are refused.
  asio::thread_pool* matching = nullptr;
};
Result<std::unique_ptr<Interceptor>> MakeInterceptor(const asio::any_io_executor& ex, InterceptorOptions options);

}  // namespace sandbar::egress
