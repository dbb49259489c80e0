// HTTP/1.1 client over TCP or TLS: the CLI, the API client and the model clients use it. It keeps one idle connection
// for the next call and streams both ways. Single loop. A call may be cancelled at any point; its connection is then
// dropped.
//
//   auto client = MakeHttpClient(ex);
//   ClientRequest request{.url = "http://127.0.0.1:8787/health"};
//   SB_CO_TRY(auto response, co_await client->Send(std::move(request)));
//   SB_CO_TRY(std::string body, co_await response->ReadAll(1 << 20));
//
// Only connecting has a deadline: an answer may be a log that is followed for days. Dead peers are found by TCP
// keep-alive. Redirects are not followed.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "http/server.h"

namespace sandbar::http {

struct ClientRequest {
  std::string method = "GET";
  std::string url;              // http://host:port/path?query or https://…
  std::vector<Header> headers;  // Host, Content-Length and Transfer-Encoding are added
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

// Pulls request bodies too large for memory; empty string ends. Its error ends the call with that error.
using BodyProducer = std::function<Task<std::string>()>;

class HttpClient {
 public:
  virtual ~HttpClient() = default;
  // Keeps one idle connection and reuses it. Errors: kUnavailable (cannot connect), kTimeout, kProtocol, kClosed.
  virtual Task<std::unique_ptr<ClientResponse>> Send(ClientRequest request) = 0;
  // Chunked, or with the Content-Length that the request's headers give. Stops sending when the server answers early.
  virtual Task<std::unique_ptr<ClientResponse>> SendStreaming(ClientRequest request, BodyProducer body) = 0;
};

struct HttpClientOptions {
  std::chrono::milliseconds connect_timeout{10000};
  std::string ca_file;  // trusted besides the system's authorities
};

std::unique_ptr<HttpClient> MakeHttpClient(asio::any_io_executor ex, HttpClientOptions options = {});

}  // namespace sandbar::http
