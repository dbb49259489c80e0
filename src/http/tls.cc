#include "http/tls.h"

#include <algorithm>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/ssl/impl/src.hpp>  // separate compilation: the TLS half of Asio lives in this file
#include <boost/asio/write.hpp>

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

class TlsStream final : public ByteStream {
 public:
  TlsStream(asio::ip::tcp::socket socket, TlsContext context, ssl::stream_base::handshake_type side)
      : context_(std::move(context)), stream_(std::move(socket), *context_), side_(side) {}

  ssl::stream<asio::ip::tcp::socket>& stream() { return stream_; }

  Task<> Handshake() override {
    auto [ec] = co_await stream_.async_handshake(side_, kToken);
    if (!ec) co_return Result<>{};
    const long verify = SSL_get_verify_result(stream_.native_handle());
    if (side_ == ssl::stream_base::client && verify != X509_V_OK) {
      std::string why = X509_verify_cert_error_string(verify);
      co_return Fail(Code::kUnavailable, "TLS: the server's certificate was refused: " + why);
    }
    co_return std::unexpected(FromAsio(ec, "TLS handshake"));
  }

  Task<size_t> ReadSome(char* data, size_t n) override {
    auto buffer = asio::buffer(data, n);
    auto [ec, got] = co_await stream_.async_read_some(buffer, kToken);
    // Truncation is told from the end by HTTP's own framing.
    if (ec == asio::error::eof || ec == ssl::error::stream_truncated) co_return size_t{0};
    if (ec) co_return std::unexpected(FromAsio(ec, "read"));
    co_return got;
  }

  Task<> WriteAll(Pieces pieces) override {
    std::array<asio::const_buffer, 3> buffers;
    std::ranges::transform(pieces, buffers.begin(), [](auto p) { return asio::const_buffer(p.data(), p.size()); });
    auto [ec, n] = co_await asio::async_write(stream_, buffers, kToken);
    if (ec) co_return std::unexpected(FromAsio(ec, "write"));
    co_return Result<>{};
  }

  Task<> Linger(size_t max_bytes) override {
    co_await stream_.async_shutdown(kToken);
    auto* socket = &stream_.next_layer();
    co_return co_await LingerSocket(socket, max_bytes);
  }

  void Close() override {
    boost::system::error_code ignored;
    stream_.next_layer().close(ignored);
  }

  int fd() const override { return const_cast<TlsStream*>(this)->stream_.next_layer().native_handle(); }

 private:
  TlsContext context_;
  ssl::stream<asio::ip::tcp::socket> stream_;
  ssl::stream_base::handshake_type side_;
};

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

std::unique_ptr<ByteStream> MakeTlsServerStream(asio::ip::tcp::socket socket, TlsContext context) {
  return std::make_unique<TlsStream>(std::move(socket), std::move(context), ssl::stream_base::server);
}

std::unique_ptr<ByteStream> MakeTlsClientStream(asio::ip::tcp::socket socket, TlsContext context, std::string host) {
  auto out = std::make_unique<TlsStream>(std::move(socket), std::move(context), ssl::stream_base::client);
  SSL* handle = out->stream().native_handle();
  boost::system::error_code not_an_address;
  asio::ip::make_address(host, not_an_address);
  // RFC 6066: addresses are not sent as SNI, but they are verified.
  if (not_an_address) {
    SSL_set_tlsext_host_name(handle, host.c_str());
    SSL_set1_host(handle, host.c_str());
  } else {
    X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(handle), host.c_str());
  }
  return out;
}

}  // namespace sandbar::http
