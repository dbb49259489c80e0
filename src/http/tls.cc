#include "http/tls.h"

#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/impl/src.hpp>  // separate compilation: the TLS half of Asio lives in this file

#include "base/fd.h"
#include "http/socket_stream.h"

namespace sandbar::http {

namespace {

namespace ssl = asio::ssl;

Result<TlsContext> MakeContext(ssl::context::method method) {
  TlsContext context;
  try {
    context = std::make_shared<ssl::context>(method);
  } catch (const std::exception& e) {
    return Fail(Code::kInternal, std::string("TLS: ") + e.what());
  }
  if (SSL_CTX_set_min_proto_version(context->native_handle(), TLS1_2_VERSION) != 1)
    return Fail(Code::kInternal, "TLS: cannot require version 1.2");
  SSL_CTX_set_options(context->native_handle(), SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  return context;
}

// Takes the socket over from Asio's type for TCP.
Result<Descriptor> TakeOver(asio::ip::tcp::socket socket) {
  Descriptor out(socket.get_executor());
  boost::system::error_code ec;
  Fd fd(socket.release(ec));
  if (!ec) out.assign(fd.get(), ec);
  if (ec) return std::unexpected(FromAsio(ec, "TLS"));
  fd.Release();
  out.native_non_blocking(true, ec);
  if (ec) return std::unexpected(FromAsio(ec, "TLS"));
  return out;
}

}  // namespace

Result<TlsContext> MakeServerTls(const std::string& cert_chain_file, const std::string& key_file) {
  SB_TRY(TlsContext context, MakeContext(ssl::context::tls_server));
  boost::system::error_code ec;
  context->use_certificate_chain_file(cert_chain_file, ec);
  if (ec) return Fail(Code::kBadRequest, "TLS certificate " + cert_chain_file + ": " + ec.message());
  context->use_private_key_file(key_file, ssl::context::pem, ec);
  if (ec) return Fail(Code::kBadRequest, "TLS key " + key_file + ": " + ec.message());
  if (SSL_CTX_check_private_key(context->native_handle()) != 1)
    return Fail(Code::kBadRequest, "TLS key " + key_file + " does not belong to certificate " + cert_chain_file);
  return context;
}

Result<TlsContext> MakeClientTls(const std::string& ca_file) {
  SB_TRY(TlsContext context, MakeContext(ssl::context::tls_client));
  boost::system::error_code ec;
  context->set_verify_mode(ssl::verify_peer, ec);
  if (ec) return Fail(Code::kInternal, "TLS: " + ec.message());
  context->set_default_verify_paths(ec);
  if (ec) return Fail(Code::kInternal, "TLS trust store: " + ec.message());
  if (!ca_file.empty()) context->load_verify_file(ca_file, ec);
  if (ec) return Fail(Code::kBadRequest, "TLS authorities " + ca_file + ": " + ec.message());
  return context;
}

Result<std::unique_ptr<ByteStream>> MakeTlsServerStream(asio::ip::tcp::socket socket, const TlsContext& context) {
  SB_TRY(Descriptor taken, TakeOver(std::move(socket)));
  return OwnTlsServer(std::move(taken), context->native_handle());
}

Result<std::unique_ptr<ByteStream>> MakeTlsClientStream(asio::ip::tcp::socket socket, const TlsContext& context,
                                                        const std::string& host) {
  SB_TRY(Descriptor taken, TakeOver(std::move(socket)));
  return OwnTlsClient(std::move(taken), context->native_handle(), {.host = host});
}

}  // namespace sandbar::http
