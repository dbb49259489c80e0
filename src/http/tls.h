// TLS for the HTTP server and client: contexts, and streams (http/socket_stream.h) over TCP sockets. TLS 1.2 and newer
// only. Single loop.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <memory>
#include <string>

#include "base/result.h"
#include "http/byte_stream.h"

namespace sandbar::http {

// A stream keeps what it needs of its context: OpenSSL counts references.
using TlsContext = std::shared_ptr<asio::ssl::context>;

// PEM files. Errors say which file and why.
Result<TlsContext> MakeServerTls(const std::string& cert_chain_file, const std::string& key_file);
// Trusts the system's authorities (SSL_CERT_FILE is honoured) and those in `ca_file`, when given.
Result<TlsContext> MakeClientTls(const std::string& ca_file);

Result<std::unique_ptr<ByteStream>> MakeTlsServerStream(asio::ip::tcp::socket socket, const TlsContext& context);
// Sends `host` as SNI and verifies that the certificate is for it.
Result<std::unique_ptr<ByteStream>> MakeTlsClientStream(asio::ip::tcp::socket socket, const TlsContext& context,
                                                        const std::string& host);

}  // namespace sandbar::http
