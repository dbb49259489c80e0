// The reverse proxy to a server inside a machine: one request of a client goes there and its answer comes back, both
// streamed with back-pressure. Single loop.
//
//   IngressRequest request{.target = x->request().target, .host = "sb-x.localhost:8787", .headers = …};
//   co_await ProxyToGuest(x, co_await machine.Dial(3000), std::move(request), {});
//
// Neither side is trusted. What was parsed strictly is written anew, never passed on raw; fields that concern one
// connection only are dropped, X-Forwarded-* is ours alone. A connection to the guest serves one request and is closed:
// whatever the guest sends behind its answer reaches nobody. A 101 passes only as the answer to a WebSocket request
// (not h2c, which would tunnel past this parser), and joins the two connections.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "async/task.h"
#include "base/fd.h"
#include "http/byte_stream.h"
#include "http/server.h"

namespace sandbar::ingress {

struct IngressRequest {
  std::string target;                 // origin-form
  std::string host;                   // the Host that the guest's server sees
  std::vector<http::Header> headers;  // the client's, without what the caller wants to keep from the guest
  std::string client;                 // X-Forwarded-For
  std::string scheme;                 // X-Forwarded-Proto
  std::string public_host;            // X-Forwarded-Host
  std::shared_ptr<http::Traffic> traffic = nullptr;  // where the bytes of the guest's connection are counted
};

struct IngressLimits {
  std::chrono::seconds answer{120};  // of silence before the answer's head, the upload included
  std::chrono::seconds idle{1800};   // of silence in an answer or on a WebSocket
  std::chrono::seconds stall{60};    // until the client takes what it is sent
  // After a 101 the guest's first bytes wait so long, or until the client has sent something: a client that begins to
  // listen when the connection is open misses what comes together with the 101.
  std::chrono::milliseconds settle{20};
};

// Errors before anything was answered (x->started() is false): kClosed or kProtocol for a guest that hung up or does
// not speak HTTP, kTimeout, or the client's own kBadRequest. Later ones cut the client's connection.
Task<> ProxyToGuest(http::HttpExchange* x, Fd guest, IngressRequest request, IngressLimits limits);

// The value of a Set-Cookie field without its Domain attribute: a preview's cookies are its own host's.
std::string HostOnlyCookie(std::string_view set_cookie);

}  // namespace sandbar::ingress
