// Byte streams over a non-blocking socket of the loop, plain or TLS. This is the one TLS stream: the server and the
// client (http/tls.h) and interception (egress/intercept_connection.h) use it. OpenSSL works on the socket through a
// small BIO, so bytes that somebody already read can come first, and a Meter counts the bytes on the wire. Single loop;
// the rules of ByteStream apply. A stream that is always ready lets other tasks run now and then.
//
//   SB_CO_TRY(auto up, OwnTlsClient(std::move(dialled), context->native_handle(), {.host = "api.example"}));
//   SB_CO_TRYV(co_await up->Handshake());   // verified, or an error that says why not
#pragma once

#include <openssl/types.h>

#include <boost/asio/posix/stream_descriptor.hpp>
#include <memory>
#include <string>

#include "async/task.h"
#include "http/byte_stream.h"

namespace sandbar::http {

// A connected, non-blocking socket registered with the loop.
using Descriptor = asio::posix::stream_descriptor;

// Is told of the bytes on the wire, and may slow a stream down.
class Meter {
 public:
  virtual ~Meter() = default;
  virtual void OnRead(size_t n) = 0;
  virtual void OnWritten(size_t n) = 0;
  // True: a stream asks Ready() before it moves bytes.
  virtual bool limited() const { return false; }
  // False: not yet, ask again.
  virtual Task<bool> Ready() { co_return true; }
};

class SocketStream : public ByteStream {
 public:
  // Open on both sides, and the peer has sent nothing that is not read yet.
  virtual bool Quiet() const = 0;
  // TLS, this side the server: the SNI as the client sent it, after the handshake. Else empty.
  virtual std::string server_name() const { return {}; }
};

// `socket` and `meter` outlive them; `socket` is not closed by them. `early` is taken as if it had come first.
std::unique_ptr<SocketStream> BorrowPlain(Descriptor* socket, std::string early, Meter* meter);
// Handshake() fails with kUnsupported when the client's ALPN has nothing of ours. The context may be freed before.
std::unique_ptr<SocketStream> BorrowTlsServer(Descriptor* socket, std::string early, Meter* meter, SSL_CTX* context);

std::unique_ptr<SocketStream> OwnPlain(Descriptor socket);
std::unique_ptr<SocketStream> OwnTlsServer(Descriptor socket, SSL_CTX* context);

struct TlsClientOptions {
  std::string host;               // sent as SNI when it is a name; the certificate must be for it
  bool offer_http11 = false;      // with ALPN
  bool partial_wildcards = true;  // a certificate for "f*.example" fits "foo.example"
};
// kUnavailable: OpenSSL does not take the host.
Result<std::unique_ptr<SocketStream>> OwnTlsClient(Descriptor socket, SSL_CTX* context,
                                                   const TlsClientOptions& options);

}  // namespace sandbar::http
