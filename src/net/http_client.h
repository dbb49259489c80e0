// HTTP/1.1 client over TCP or TLS for the CLI (and later for registries and forwarding): one connection per call
// unless kept, streaming both ways.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "net/http_server.h"

namespace sandbar::net {

struct ClientRequest {
  std::string method = "GET";
  std::string url;  // http://host:port/path?query or https://…
  std::vector<Header> headers;
  std::string body;
};

struct ClientResponseHead {
  int status = 0;
  std::vector<Header> headers;
  std::string_view Get(std::string_view name) const;
};

class ClientResponse {
 public:
  virtual ~ClientResponse() = default;
  virtual const ClientResponseHead& head() const = 0;
  virtual Task<std::string> Read() = 0;  // empty at the end; kClosed when cut short
  virtual Task<std::string> ReadAll(size_t limit) = 0;
};

// Pulls request bodies too large for memory; empty string ends.
using BodyProducer = std::function<Task<std::string>()>;

class HttpClient {
 public:
  virtual ~HttpClient() = default;
  // Keeps one idle connection and reuses it. Errors: kUnavailable (cannot connect), kTimeout, kProtocol, kClosed.
  virtual Task<std::unique_ptr<ClientResponse>> Send(ClientRequest request) = 0;
  virtual Task<std::unique_ptr<ClientResponse>> SendStreaming(ClientRequest request, BodyProducer body) = 0;
};

std::unique_ptr<HttpClient> MakeHttpClient(asio::any_io_executor ex);

}  // namespace sandbar::net
