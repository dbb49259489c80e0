#include "egress/intercept_stream.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <utility>

namespace sandbar::egress {

namespace {

constexpr size_t kFairShare = 512 << 10;  // moved before other connections of the loop get their turn
constexpr unsigned char kHttp11[] = {8, 'h', 't', 't', 'p', '/', '1', '.', '1'};

// The socket as plain non-blocking reads and writes, with what was read before and the counters.
class Wire {
 public:
  Wire(Stream* socket, std::string opening, Meter meter)
      : socket_(socket), opening_(std::move(opening)), meter_(meter) {}
  explicit Wire(Stream socket) : owned_(std::make_unique<Stream>(std::move(socket))), socket_(owned_.get()) {}

  // As recv(2) and send(2): -1 with errno.
  ssize_t Read(char* data, size_t n) {
    ssize_t got = 0;
    if (!opening_.empty()) {
      got = static_cast<ssize_t>(opening_.copy(data, n));
      opening_.erase(0, static_cast<size_t>(got));
    } else {
      got = ::recv(fd(), data, n, 0);
    }
    if (got > 0) Count(meter_.read, static_cast<size_t>(got));
    return got;
  }
  ssize_t Write(const char* data, size_t n) {
    ssize_t put = ::send(fd(), data, n, MSG_NOSIGNAL);
    if (put > 0) Count(meter_.written, static_cast<size_t>(put));
    return put;
  }

  Task<> Wait(Stream::wait_type what) {
    moved_ = 0;
    auto [ec] = co_await socket_->async_wait(what, kToken);
    if (ec) co_return std::unexpected(FromAsio(ec, what == Stream::wait_read ? "read" : "write"));
    co_return Result<>{};
  }
  bool MustPause() const {
    return moved_ >= kFairShare || (meter_.bandwidth != nullptr && meter_.bandwidth->limited());
  }
  // Lets others run, and waits until there is bandwidth to spend.
  Task<> Pause() {
    if (moved_ >= kFairShare) {
      moved_ = 0;
      SB_CO_TRYV(co_await Yield());
    }
    bool ready = meter_.bandwidth == nullptr || !meter_.bandwidth->limited();
    while (!ready) {
      SB_CO_TRY(ready, co_await meter_.bandwidth->Ready());
    }
    co_return Result<>{};
  }

  bool Quiet() const {
    pollfd p{fd(), POLLIN | POLLRDHUP, 0};
    return opening_.empty() && ::poll(&p, 1, 0) == 0;
  }
  Task<> Linger(size_t max_bytes) {
    ::shutdown(fd(), SHUT_WR);
    opening_.clear();
    std::string sink(64 << 10, '\0');
    for (size_t total = 0; total < max_bytes;) {
      ssize_t n = Read(sink.data(), sink.size());
      if (n == 0) break;
      if (n > 0) total += static_cast<size_t>(n);
      if (n > 0 || errno == EINTR) continue;
      if (errno != EAGAIN) break;
      SB_CO_TRYV(co_await Wait(Stream::wait_read));
    }
    co_return Result<>{};
  }
  void Close() {
    boost::system::error_code ignored;
    if (owned_) {
      owned_->close(ignored);
    } else {
      socket_->cancel(ignored);
    }
  }
  int fd() const { return socket_->native_handle(); }

 private:
  void Count(uint64_t* counter, size_t n) {
    moved_ += n;
    if (counter != nullptr) *counter += n;
    if (meter_.bandwidth != nullptr) meter_.bandwidth->Spend(n);
  }

  std::unique_ptr<Stream> owned_;
  Stream* socket_;
  std::string opening_;
  Meter meter_;
  size_t moved_ = 0;  // since the last wait or pause
};

class PlainStream final : public SocketStream {
 public:
  explicit PlainStream(Wire wire) : wire_(std::move(wire)) {}

  Task<> Handshake() override { co_return Result<>{}; }

  Task<size_t> ReadSome(char* data, size_t n) override {
    if (wire_.MustPause()) SB_CO_TRYV(co_await wire_.Pause());
    for (;;) {
      ssize_t got = wire_.Read(data, n);
      if (got >= 0) co_return static_cast<size_t>(got);
      if (errno == EINTR) continue;
      if (errno == ECONNRESET) co_return Fail(Code::kClosed, "the peer reset the connection");
      if (errno != EAGAIN) co_return FailErrno("read");
      SB_CO_TRYV(co_await wire_.Wait(Stream::wait_read));
    }
  }

  Task<> WriteAll(http::Pieces pieces) override {
    for (std::string_view piece : pieces) {
      while (!piece.empty()) {
        if (wire_.MustPause()) SB_CO_TRYV(co_await wire_.Pause());
        ssize_t put = wire_.Write(piece.data(), piece.size());
        if (put >= 0) piece.remove_prefix(static_cast<size_t>(put));
        if (put >= 0 || errno == EINTR) continue;
        if (errno != EAGAIN) co_return Fail(Code::kClosed, std::string("write: ") + std::strerror(errno));
        SB_CO_TRYV(co_await wire_.Wait(Stream::wait_write));
      }
    }
    co_return Result<>{};
  }

  Task<> Linger(size_t max_bytes) override { return wire_.Linger(max_bytes); }
  void Close() override { wire_.Close(); }
  int fd() const override { return wire_.fd(); }
  bool Quiet() const override { return wire_.Quiet(); }

 private:
  Wire wire_;
};

// OpenSSL's view of a Wire.
int BioRead(BIO* bio, char* data, int n) {
  BIO_clear_retry_flags(bio);
  ssize_t got = static_cast<Wire*>(BIO_get_data(bio))->Read(data, static_cast<size_t>(n));
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_read(bio);
  if (got == 0) BIO_set_flags(bio, BIO_FLAGS_IN_EOF);
  return static_cast<int>(got);
}

int BioWrite(BIO* bio, const char* data, int n) {
  BIO_clear_retry_flags(bio);
  ssize_t put = static_cast<Wire*>(BIO_get_data(bio))->Write(data, static_cast<size_t>(n));
  if (put < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_write(bio);
  return static_cast<int>(put);
}

long BioControl(BIO* bio, int command, long, void*) {
  if (command == BIO_CTRL_FLUSH) return 1;
  if (command == BIO_CTRL_EOF) return BIO_test_flags(bio, BIO_FLAGS_IN_EOF) != 0 ? 1 : 0;
  return 0;
}

const BIO_METHOD* WireMethod() {
  static const BIO_METHOD* const kMethod = [] {
    BIO_METHOD* m = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "wire");
    BIO_meth_set_read(m, BioRead);
    BIO_meth_set_write(m, BioWrite);
    BIO_meth_set_ctrl(m, BioControl);
    BIO_meth_set_create(m, [](BIO* bio) {
      BIO_set_init(bio, 1);
      return 1;
    });
    return m;
  }();
  return kMethod;
}

std::string LastTlsError() {
  unsigned long e = ERR_peek_last_error();
  const char* reason = e == 0 ? nullptr : ERR_reason_error_string(e);
  return reason == nullptr ? "the connection broke" : reason;
}

class TlsSocketStream final : public SocketStream {
 public:
  TlsSocketStream(Wire wire, SSL_CTX* context, bool server)
      : wire_(std::move(wire)), ssl_(SSL_new(context), SSL_free), server_(server) {
    BIO* bio = BIO_new(WireMethod());
    SB_CHECK(ssl_ != nullptr && bio != nullptr);
    BIO_set_data(bio, &wire_);
    SSL_set_bio(ssl_.get(), bio, bio);
    SSL_set_mode(ssl_.get(),
                 SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
    if (server) {
      SSL_set_accept_state(ssl_.get());
    } else {
      SSL_set_connect_state(ssl_.get());
    }
  }
  TlsSocketStream(const TlsSocketStream&) = delete;
  TlsSocketStream& operator=(const TlsSocketStream&) = delete;
  SSL* ssl() { return ssl_.get(); }

  Task<> Handshake() override {
    for (;;) {
      ERR_clear_error();
      int rc = SSL_do_handshake(ssl_.get());
      if (rc == 1) co_return Result<>{};
      SB_CO_TRY(bool again, co_await Again(rc));
      if (!again) co_return HandshakeFailed();
    }
  }

  Task<size_t> ReadSome(char* data, size_t n) override {
    if (wire_.MustPause()) SB_CO_TRYV(co_await wire_.Pause());
    for (;;) {
      ERR_clear_error();
      int got = SSL_read(ssl_.get(), data, static_cast<int>(std::min<size_t>(n, INT_MAX)));
      if (got > 0) co_return static_cast<size_t>(got);
      SB_CO_TRY(bool again, co_await Again(got));
      if (again) continue;
      // Truncation is told from the end by HTTP's own framing.
      const bool ended = SSL_get_error(ssl_.get(), got) == SSL_ERROR_ZERO_RETURN ||
                         ERR_GET_REASON(ERR_peek_last_error()) == SSL_R_UNEXPECTED_EOF_WHILE_READING;
      if (ended) co_return size_t{0};
      co_return Fail(Code::kClosed, "TLS: " + LastTlsError());
    }
  }

  Task<> WriteAll(http::Pieces pieces) override {
    for (std::string_view piece : pieces) {
      while (!piece.empty()) {
        if (wire_.MustPause()) SB_CO_TRYV(co_await wire_.Pause());
        ERR_clear_error();
        int put = SSL_write(ssl_.get(), piece.data(), static_cast<int>(std::min<size_t>(piece.size(), INT_MAX)));
        if (put > 0) piece.remove_prefix(static_cast<size_t>(put));
        if (put > 0) continue;
        SB_CO_TRY(bool again, co_await Again(put));
        if (!again) co_return Fail(Code::kClosed, "TLS: " + LastTlsError());
      }
    }
    co_return Result<>{};
  }

  Task<> Linger(size_t max_bytes) override {
    ERR_clear_error();
    if (SSL_is_init_finished(ssl_.get()) != 0) SSL_shutdown(ssl_.get());
    co_return co_await wire_.Linger(max_bytes);
  }
  void Close() override { wire_.Close(); }
  int fd() const override { return wire_.fd(); }
  bool Quiet() const override { return SSL_has_pending(ssl_.get()) == 0 && wire_.Quiet(); }
  std::string server_name() const override {
    const char* name = server_ ? SSL_get_servername(ssl_.get(), TLSEXT_NAMETYPE_host_name) : nullptr;
    return name == nullptr ? "" : name;
  }

 private:
  // Waits for what OpenSSL wants; false: it wants nothing more, the call failed or the stream ended.
  Task<bool> Again(int rc) {
    const int error = SSL_get_error(ssl_.get(), rc);
    if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE) co_return false;
    const auto what = error == SSL_ERROR_WANT_READ ? Stream::wait_read : Stream::wait_write;
    SB_CO_TRYV(co_await wire_.Wait(what));
    co_return true;
  }
  std::unexpected<Error> HandshakeFailed() const {
    const long verify = SSL_get_verify_result(ssl_.get());
    if (!server_ && verify != X509_V_OK) {
      std::string why = X509_verify_cert_error_string(verify);
      return Fail(Code::kUnavailable, "the server's certificate was refused: " + why);
    }
    const bool alpn = ERR_GET_REASON(ERR_peek_last_error()) == SSL_R_NO_APPLICATION_PROTOCOL;
    return Fail(server_ && alpn ? Code::kUnsupported : Code::kClosed, "TLS handshake: " + LastTlsError());
  }

  Wire wire_;
  std::unique_ptr<SSL, void (*)(SSL*)> ssl_;
  bool server_;
};

}  // namespace

std::unique_ptr<SocketStream> BorrowPlain(Stream* socket, std::string opening, Meter meter) {
  return std::make_unique<PlainStream>(Wire(socket, std::move(opening), meter));
}

std::unique_ptr<SocketStream> BorrowTlsServer(Stream* socket, std::string opening, Meter meter, SSL_CTX* context) {
  return std::make_unique<TlsSocketStream>(Wire(socket, std::move(opening), meter), context, true);
}

std::unique_ptr<SocketStream> OwnPlain(Stream socket) {
  return std::make_unique<PlainStream>(Wire(std::move(socket)));
}

std::unique_ptr<SocketStream> OwnTlsClient(Stream socket, SSL_CTX* context, const std::string& host) {
  auto out = std::make_unique<TlsSocketStream>(Wire(std::move(socket)), context, false);
  SSL* ssl = out->ssl();
  SSL_set_alpn_protos(ssl, kHttp11, sizeof kHttp11);
  SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  // RFC 6066: addresses are not sent as SNI, but they are verified.
  if (ParseAddress(host)) {
    SB_CHECK(X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host.c_str()) == 1);
  } else {
    SB_CHECK(SSL_set_tlsext_host_name(ssl, host.c_str()) == 1 && SSL_set1_host(ssl, host.c_str()) == 1);
  }
  return out;
}

}  // namespace sandbar::egress
