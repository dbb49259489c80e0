// HTTP/1.1 server: keep-alive, streaming both ways with back-pressure, strict parsing (wire/http1.h).
// Single loop. A handler is a coroutine that reads the request's body if it wants it and answers exactly once.
//
//   Task<> Hello(HttpExchange* x) { co_return co_await x->Respond({.status = 200, .body = "hi\n"}); }
//
// If the handler returns an error, or without answering, the server answers with the error handler's Response (when
// nothing was sent yet) or cuts the connection. An unread body is drained up to a small bound, else the connection
// closes.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "async/task.h"
#include "wire/http1.h"

namespace sandbar::http {

class ByteStream;  // http/byte_stream.h

using Header = wire::HttpField;  // {name, value}

struct HttpRequest {
  std::string method;
  std::string target;  // as sent, origin-form only
  std::string path;    // before '?', still percent-encoded
  std::string query;   // after '?'
  std::vector<Header> headers;
  // First value of a header, case-insensitive; empty when absent.
  std::string_view Get(std::string_view name) const;
  bool Has(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::vector<Header> headers;
};

class HttpExchange {
 public:
  virtual ~HttpExchange() = default;
  virtual const HttpRequest& request() const = 0;
  virtual std::string peer() const = 0;  // "address:port"

  // Next piece of the body, empty at its end. Sends "100 Continue" when the client asked for it.
  virtual Task<std::string> ReadBody() = 0;
  // Whole body; kTooLarge past the limit.
  virtual Task<std::string> ReadAll(size_t limit) = 0;

  virtual Task<> Respond(HttpResponse response) = 0;
  // Streaming answer: head at once (chunked, or content-length when given), then pieces; each Write is flushed and
  // completes when the socket took it (back-pressure). Finish ends it properly; not finishing cuts the connection.
  virtual Task<> StartStream(int status, std::string content_type, std::vector<Header> headers,
                             std::optional<uint64_t> content_length) = 0;
  virtual Task<> Write(std::string bytes) = 0;
  virtual Task<> Finish() = 0;
  virtual bool started() const = 0;
  // Completes when the client went away (half-close counts) or the server closes; for cancelling waits, e.g. as
  // co_await (Work() || x->WaitClosed()). Not beside ReadBody or ReadAll. An error means that it was itself cancelled.
  virtual Task<> WaitClosed() = 0;

  // The client asked for another protocol on this connection (HTTP/1.1, Connection: Upgrade, no body).
  virtual bool wants_upgrade() const = 0;
  // Answers 101 with these fields; from then on the bytes are the handler's, those that the client sent early included.
  // The stream is valid until the handler returns, which ends the connection. No deadline of the server applies to it
  // but LimitStalls.
  virtual Task<ByteStream*> Upgrade(std::vector<Header> headers) = 0;
  // From now on the client has to take every write within this time, or the connection is cut.
  virtual void LimitStalls(std::chrono::seconds limit) = 0;
  // The client has shown a credential: its connection is the last to be closed for another one's sake.
  virtual void Vouch() = 0;
};

// Runs with throw_if_cancelled off: when the server closes, the wait that the handler is in fails with kCancelled and
// so does every later call of the exchange; what the handler awaits after that (clean-up) still runs.
using HttpHandler = std::function<Task<>(HttpExchange*)>;

inline constexpr size_t kMaxConnections = 4096;

struct HttpServerOptions {
  size_t max_header_bytes = 64 << 10;
  size_t max_connections = kMaxConnections;        // at the limit, connections that wait make room (connection_table.h)
  std::chrono::seconds header_timeout{30};         // from the first byte to the end of the head
  std::chrono::seconds crowded_header_timeout{5};  // the same for a first request while places are scarce
  std::chrono::seconds idle_timeout{120};          // keep-alive
  std::chrono::seconds answer_timeout{30};         // for the client to take an answer that is not a stream
  std::chrono::seconds write_stall_timeout{0};     // 0: a slow reader may take for ever
  std::string tls_cert_file, tls_key_file;         // both set: HTTPS
  // Another certificate for clients that ask for a name under this suffix (".preview.example").
  std::string other_tls_suffix, other_tls_cert_file, other_tls_key_file;
};

class HttpServer {
 public:
  virtual ~HttpServer() = default;
  virtual uint16_t port() const = 0;
  // Stops accepting, cancels connections, joins. Await before destruction.
  virtual asio::awaitable<void> Close() = 0;
};

// Binds "host:port": an address literal or "localhost"; port 0 picks one. An error keeps its errno (EADDRINUSE, …).
// `on_error` turns an Error into the answer's body for failures of parsing and of handlers; it must not block.
Result<std::unique_ptr<HttpServer>> ListenHttp(asio::any_io_executor ex, const std::string& host, uint16_t port,
                                               HttpServerOptions options, HttpHandler handler,
                                               std::function<HttpResponse(const Error&)> on_error);

}  // namespace sandbar::http
