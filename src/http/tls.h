// TLS for the HTTP server and client: contexts and streams over OpenSSL. TLS 1.2 and newer only. Single loop.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <memory>
#include <string>

#include "base/result.h"
#include "http/byte_stream.h"

namespace sandbar::http {

// Both owners, the one who made it and every stream, keep it alive: OpenSSL counts references below, Asio's wrapper
// does not.
using TlsContext = std::shared_ptr<asio::ssl::context>;

// PEM files. Errors say which file and why.
Result<TlsContext> MakeServerTls(const std::string& cert_chain_file, const std::string& key_file);
// Trusts the system's authorities (SSL_CERT_FILE is honoured) and those in `ca_file`, when given.
Result<TlsContext> MakeClientTls(const std::string& ca_file);

std::unique_ptr<ByteStream> MakeTlsServerStream(asio::ip::tcp::socket socket, TlsContext context);
// Sends `host` as SNI and verifies that the certificate is for it.
std::unique_ptr<ByteStream> MakeTlsClientStream(asio::ip::tcp::socket socket, TlsContext context, std::string host);

}  // namespace sandbar::http
