// Byte streams over a net::Stream (a socket that GuardedConnect dialled or an egress listener accepted), plain or TLS.
// OpenSSL works on the non-blocking socket through a small BIO, so bytes that somebody already read can come first and
// wire bytes are counted. Single loop; the rules of ByteStream apply. A stream that is always ready lets others run now
// and then.
//
//   auto up = OwnTlsClient(std::move(dialled), context->native_handle(), "api.example");
//   SB_CO_TRYV(co_await up->Handshake());   // verified, or an error that says why not
#pragma once

#include <openssl/types.h>

#include <cstdint>
#include <memory>
#include <string>

#include "egress/bandwidth.h"
#include "egress/guarded_connect.h"
#include "http/byte_stream.h"

namespace sandbar::egress {

// Bytes on the wire are added to these and wait for the bandwidth. All outlive the stream; null: not wanted.
struct Meter {
  uint64_t* read = nullptr;
  uint64_t* written = nullptr;
  Bandwidth* bandwidth = nullptr;
};

class SocketStream : public http::ByteStream {
 public:
  // Open on both sides, and the peer has sent nothing that is not read yet.
  virtual bool Quiet() const = 0;
  // TLS, this side the server: the SNI as the client sent it, after the handshake. Else empty.
  virtual std::string server_name() const { return {}; }
};

// `socket` outlives them and is not closed by them; `opening` is taken as if it had come first.
std::unique_ptr<SocketStream> BorrowPlain(Stream* socket, std::string opening, Meter meter);
// Handshake() fails with kUnsupported when the client's ALPN has nothing of ours. The context may be freed before.
std::unique_ptr<SocketStream> BorrowTlsServer(Stream* socket, std::string opening, Meter meter, SSL_CTX* context);

std::unique_ptr<SocketStream> OwnPlain(Stream socket);
// Sends `host` as SNI when it is a name, offers HTTP/1.1, and verifies that the certificate is for `host`.
std::unique_ptr<SocketStream> OwnTlsClient(Stream socket, SSL_CTX* context, const std::string& host);

}  // namespace sandbar::egress
