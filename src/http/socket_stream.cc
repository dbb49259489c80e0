#include "http/socket_stream.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/ip/address.hpp>
#include <climits>
#include <cstring>
#include <utility>

namespace sandbar::http {

namespace {

constexpr size_t kFairShare = 512 << 10;  // moved before other connections of the loop get their turn
constexpr size_t kRecord = 16 << 10;      // most bytes in one TLS record
constexpr unsigned char kHttp11[] = {8, 'h', 't', 't', 'p', '/', '1', '.', '1'};

// The socket as plain non-blocking reads and writes, with the bytes that were read before and the meter.
class Wire {
 public:
  Wire(Descriptor* socket, std::string early, Meter* meter)
      : socket_(socket), early_(std::move(early)), meter_(meter) {}
  explicit Wire(Descriptor socket) : owned_(std::make_unique<Descriptor>(std::move(socket))), socket_(owned_.get()) {}

  // As recv(2) and send(2): -1 with errno.
  ssize_t Read(char* data, size_t n) {
    ssize_t got = 0;
    if (!early_.empty()) {
      got = static_cast<ssize_t>(early_.copy(data, n));
      early_.erase(0, static_cast<size_t>(got));
    } else {
      got = ::recv(fd(), data, n, 0);
    }
    if (got > 0) moved_ += static_cast<size_t>(got);
    if (got > 0 && meter_ != nullptr) meter_->OnRead(static_cast<size_t>(got));
    return got;
  }
  ssize_t Write(const char* data, size_t n) {
    ssize_t put = ::send(fd(), data, n, MSG_NOSIGNAL);
    if (put > 0) moved_ += static_cast<size_t>(put);
    if (put > 0 && meter_ != nullptr) meter_->OnWritten(static_cast<size_t>(put));
    return put;
  }

  Task<> Wait(Descriptor::wait_type what) {
    moved_ = 0;
    auto [ec] = co_await socket_->async_wait(what, kToken);
    if (ec) co_return std::unexpected(FromAsio(ec, what == Descriptor::wait_read ? "read" : "write"));
    co_return Result<>{};
  }
  bool MustPause() const { return moved_ >= kFairShare || (meter_ != nullptr && meter_->limited()); }
  // Lets others run, and waits until there is bandwidth to spend.
  Task<> Pause() {
    if (moved_ >= kFairShare) {
      moved_ = 0;
      SB_CO_TRYV(co_await Yield());
    }
    bool ready = meter_ == nullptr || !meter_->limited();
    while (!ready) {
      SB_CO_TRY(ready, co_await meter_->Ready());
    }
    co_return Result<>{};
  }

  bool Quiet() const {
    pollfd p{fd(), POLLIN | POLLRDHUP, 0};
    return early_.empty() && ::poll(&p, 1, 0) == 0;
  }
  Task<> Linger(size_t max_bytes) {
    ::shutdown(fd(), SHUT_WR);
    early_.clear();
    std::string sink(64 << 10, '\0');
    for (size_t total = 0; total < max_bytes;) {
      ssize_t n = Read(sink.data(), sink.size());
      if (n == 0) break;
      if (n > 0) total += static_cast<size_t>(n);
      if (n > 0 || errno == EINTR) continue;
      if (errno != EAGAIN) break;
      SB_CO_TRYV(co_await Wait(Descriptor::wait_read));
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
  std::unique_ptr<Descriptor> owned_;
  Descriptor* socket_;
  std::string early_;
  Meter* meter_ = nullptr;
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
      SB_CO_TRYV(co_await wire_.Wait(Descriptor::wait_read));
    }
  }

  Task<> WriteAll(Pieces pieces) override {
    for (std::string_view piece : pieces) {
      while (!piece.empty()) {
        if (wire_.MustPause()) SB_CO_TRYV(co_await wire_.Pause());
        ssize_t put = wire_.Write(piece.data(), piece.size());
        if (put >= 0) piece.remove_prefix(static_cast<size_t>(put));
        if (put >= 0 || errno == EINTR) continue;
        if (errno != EAGAIN) co_return Fail(Code::kClosed, std::string("write: ") + std::strerror(errno));
        SB_CO_TRYV(co_await wire_.Wait(Descriptor::wait_write));
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

class TlsStream final : public SocketStream {
 public:
  TlsStream(Wire wire, SSL_CTX* context, bool server)
      : wire_(std::move(wire)), ssl_(SSL_new(context), SSL_free), server_(server) {
    BIO* bio = BIO_new(WireMethod());
    SB_CHECK(ssl_ != nullptr && bio != nullptr);
    BIO_set_data(bio, &wire_);
    SSL_set_bio(ssl_.get(), bio, bio);
    SSL_set_mode(ssl_.get(),
                 SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
    SSL_set_read_ahead(ssl_.get(), 1);  // a record's header and body come with one recv
    if (server) {
      SSL_set_accept_state(ssl_.get());
    } else {
      SSL_set_connect_state(ssl_.get());
    }
  }
  TlsStream(const TlsStream&) = delete;
  TlsStream& operator=(const TlsStream&) = delete;
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

  Task<> WriteAll(Pieces pieces) override {
    std::string joined;
    for (std::string_view next = TakeNext(pieces, joined); !next.empty(); next = TakeNext(pieces, joined)) {
      while (!next.empty()) {
        if (wire_.MustPause()) SB_CO_TRYV(co_await wire_.Pause());
        ERR_clear_error();
        int put = SSL_write(ssl_.get(), next.data(), static_cast<int>(std::min<size_t>(next.size(), INT_MAX)));
        if (put > 0) next.remove_prefix(static_cast<size_t>(put));
        if (put > 0) continue;
        SB_CO_TRY(bool again, co_await Again(put));
        if (!again) co_return Fail(Code::kClosed, "TLS: " + LastTlsError());
      }
    }
    co_return Result<>{};
  }

  Task<> Linger(size_t max_bytes) override {
    for (bool again = SSL_is_init_finished(ssl_.get()) != 0; again;) {
      ERR_clear_error();
      int rc = SSL_shutdown(ssl_.get());
      again = rc < 0 && SSL_get_error(ssl_.get(), rc) == SSL_ERROR_WANT_WRITE;
      if (again) SB_CO_TRYV(co_await wire_.Wait(Descriptor::wait_write));
    }
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
  // Takes the next bytes to write off `pieces`: whole records of a long piece as they are, or the ends of pieces that
  // share a record, copied into `joined`. A chunk of HTTP is three pieces and should not be three packets.
  static std::string_view TakeNext(Pieces& pieces, std::string& joined) {
    auto first = std::ranges::find_if(pieces, [](std::string_view p) { return !p.empty(); });
    if (first == pieces.end()) return {};
    const bool last = std::all_of(first + 1, pieces.end(), [](std::string_view p) { return p.empty(); });
    if (last) return std::exchange(*first, {});
    if (first->size() >= kRecord) {
      std::string_view whole = first->substr(0, first->size() - first->size() % kRecord);
      first->remove_prefix(whole.size());
      return whole;
    }
    joined.clear();
    for (; first != pieces.end(); ++first) {
      std::string_view part = first->substr(0, kRecord - joined.size());
      joined.append(part);
      first->remove_prefix(part.size());
    }
    return joined;
  }
  // Waits for what OpenSSL wants; false: it wants nothing more, the call failed or the stream ended.
  Task<bool> Again(int rc) {
    const int error = SSL_get_error(ssl_.get(), rc);
    if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE) co_return false;
    const auto what = error == SSL_ERROR_WANT_READ ? Descriptor::wait_read : Descriptor::wait_write;
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

std::unique_ptr<SocketStream> BorrowPlain(Descriptor* socket, std::string early, Meter* meter) {
  return std::make_unique<PlainStream>(Wire(socket, std::move(early), meter));
}

std::unique_ptr<SocketStream> BorrowTlsServer(Descriptor* socket, std::string early, Meter* meter, SSL_CTX* context) {
  return std::make_unique<TlsStream>(Wire(socket, std::move(early), meter), context, true);
}

std::unique_ptr<SocketStream> OwnPlain(Descriptor socket) {
  return std::make_unique<PlainStream>(Wire(std::move(socket)));
}

std::unique_ptr<SocketStream> OwnTlsServer(Descriptor socket, SSL_CTX* context) {
  return std::make_unique<TlsStream>(Wire(std::move(socket)), context, true);
}

Result<std::unique_ptr<SocketStream>> OwnTlsClient(Descriptor socket, SSL_CTX* context,
                                                   const TlsClientOptions& options) {
  auto out = std::make_unique<TlsStream>(Wire(std::move(socket)), context, false);
  SSL* ssl = out->ssl();
  const char* host = options.host.c_str();
  if (options.offer_http11) SSL_set_alpn_protos(ssl, kHttp11, sizeof kHttp11);
  if (!options.partial_wildcards) SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  boost::system::error_code not_an_address;
  asio::ip::make_address(options.host, not_an_address);
  // RFC 6066: addresses are not sent as SNI, but they are verified.
  const bool taken = not_an_address ? SSL_set_tlsext_host_name(ssl, host) == 1 && SSL_set1_host(ssl, host) == 1
                                    : X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host) == 1;
  if (!taken) return Fail(Code::kUnavailable, "TLS cannot ask for the host " + options.host);
  return out;
}

}  // namespace sandbar::http
