#include "http/server.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "base/fd.h"
#include "http/connection.h"
#include "http/connection_table.h"
#include "http/tls.h"
#include "http/tls_names.h"

namespace sandbar::http {

namespace {

using asio::ip::tcp;

constexpr std::chrono::milliseconds kSweepEvery{250};
constexpr std::chrono::milliseconds kAcceptBackOff{50};
constexpr std::chrono::milliseconds kCancelAgain{250};

std::string PeerName(const tcp::socket& socket) {
  boost::system::error_code ec;
  const auto endpoint = socket.remote_endpoint(ec);
  if (ec) return "unknown";
  const std::string address = endpoint.address().to_string();
  const std::string port = std::to_string(endpoint.port());
  return endpoint.address().is_v6() ? "[" + address + "]:" + port : address + ":" + port;
}

// Who is on the other side, as far as an address tells: of IPv6 a network belongs to one.
uint64_t OriginOf(const sockaddr_storage& address) {
  std::string_view bytes;
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    bytes = {reinterpret_cast<const char*>(&v4.sin_addr), sizeof v4.sin_addr};
  } else if (address.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
    const bool mapped = IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr);
    bytes = {reinterpret_cast<const char*>(&v6.sin6_addr) + (mapped ? 12 : 0), mapped ? 4UL : 8UL};
  }
  return std::hash<std::string_view>{}(bytes);
}

bool OutOfResources(int err) {
  return err == EMFILE || err == ENFILE || err == ENOBUFS || err == ENOMEM;
}

class Server final : public HttpServer {
 public:
  Server(asio::any_io_executor ex, tcp::acceptor acceptor, HttpServerShared shared, TlsContext tls)
      : shared_(std::move(shared)),
        tls_(std::move(tls)),
        acceptor_(std::move(acceptor)),
        live_(shared_.options.max_connections),
        wake_(ex),
        freed_(ex),
        tasks_(ex) {
    boost::system::error_code ec;
    port_ = acceptor_.local_endpoint(ec).port();
    tasks_.Spawn(AcceptLoop());
    tasks_.Spawn(SweepLoop());
  }

  uint16_t port() const override { return port_; }

  asio::awaitable<void> Close() override {
    closing_ = true;
    boost::system::error_code ignored;
    acceptor_.close(ignored);
    live_.CutAll(Code::kCancelled);
    // More than once: a handler may start a new wait while it cleans up after the first cancellation.
    while (tasks_.size() != 0) {
      tasks_.Cancel();
      co_await JoinFor(kCancelAgain);
    }
  }

 private:
  // Registers a connection for as long as its task lives.
  class Registration {
   public:
    Registration(Server* server, HttpConnection* c, uint64_t origin) : server_(server), c_(c) {
      server_->live_.Add(c_, origin);
    }
    Registration(const Registration&) = delete;
    Registration& operator=(const Registration&) = delete;
    ~Registration() {
      server_->live_.Remove(c_);
      server_->freed_.Notify();
    }

   private:
    Server* server_;
    HttpConnection* c_;
  };

  asio::awaitable<void> JoinFor(std::chrono::milliseconds d) {
    using namespace asio::experimental::awaitable_operators;
    auto ex = co_await asio::this_coro::executor;
    asio::steady_timer timer(ex, d);
    co_await (tasks_.Join() || timer.async_wait(kToken));
  }

  Task<> AcceptLoop() {
    bool starved = false;
    while (!closing_) {
      auto [ec] = co_await acceptor_.async_wait(tcp::acceptor::wait_read, kToken);
      if (ec) co_return std::unexpected(FromAsio(ec, "accept"));
      const bool full = live_.full();
      const int err = full ? 0 : AcceptReady();
      // Said once per bad spell.
      if (OutOfResources(err) && !starved)
        log::Warn("http: {}", FailErrno("cannot accept connections", err).error().message);
      starved = OutOfResources(err);
      if (!full && !starved) continue;
      // Somebody waits for a place. The listener stays readable: without a pause this would spin.
      live_.MakeRoom();
      auto freed = freed_.Wait();
      auto waited = co_await WithTimeout(std::move(freed), kAcceptBackOff);
      if (!waited && waited.error().code == Code::kCancelled) co_return waited;
    }
    co_return Result<>{};
  }

  // Takes what is in the backlog, up to the budget; returns the errno that ended it.
  int AcceptReady() {
    while (!live_.full() && !closing_) {
      sockaddr_storage address{};
      socklen_t length = sizeof address;
      // Asio's own accept would leave the descriptor open across exec.
      Fd fd(accept4(acceptor_.native_handle(), reinterpret_cast<sockaddr*>(&address), &length,
                    SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!fd && (errno == EAGAIN || OutOfResources(errno) || errno == EBADF)) return errno;
      if (!fd) continue;  // that connection died before we took it
      tcp::socket socket(tasks_.executor());
      boost::system::error_code ec;
      socket.assign(address.ss_family == AF_INET ? tcp::v4() : tcp::v6(), fd.get(), ec);
      if (ec) continue;
      fd.Release();
      socket.set_option(tcp::no_delay(true), ec);
      StartConnection(std::move(socket), OriginOf(address));
    }
    return 0;
  }

  void StartConnection(tcp::socket socket, uint64_t origin) {
    std::string peer = PeerName(socket);
    std::unique_ptr<ByteStream> stream;
    if (tls_) {
      auto made = MakeTlsServerStream(std::move(socket), tls_);
      if (!made) return;
      stream = *std::move(made);
    } else {
      stream = MakeTcpStream(std::move(socket));
    }
    auto connection = std::make_unique<HttpConnection>(std::move(stream), std::move(peer), &shared_);
    auto registration = std::make_unique<Registration>(this, connection.get(), origin);
    if (live_.size() == 1) wake_.Notify();
    tasks_.Spawn(Serve(std::move(connection), std::move(registration)));
  }

  static Task<> Serve(std::unique_ptr<HttpConnection> connection, std::unique_ptr<Registration> registration) {
    auto served = co_await connection->Run();
    registration.reset();
    co_return served;
  }

  Task<> SweepLoop() {
    while (!closing_) {
      if (live_.size() == 0) {
        SB_CO_TRYV(co_await wake_.Wait());
      } else {
        SB_CO_TRYV(co_await Sleep(kSweepEvery));
      }
      live_.CutExpired(HttpConnection::Clock::now(), shared_.options.crowded_header_timeout);
    }
    co_return Result<>{};
  }

  HttpServerShared shared_;
  TlsContext tls_;
  tcp::acceptor acceptor_;
  uint16_t port_ = 0;
  bool closing_ = false;
  ConnectionTable live_;
  Event wake_;   // the first connection after none
  Event freed_;  // a connection has left
  TaskGroup tasks_;
};

Result<tcp::endpoint> ParseEndpoint(std::string host, uint16_t port) {
  if (host == "localhost") host = "127.0.0.1";
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  boost::system::error_code ec;
  const auto address = asio::ip::make_address(host, ec);
  if (ec) return Fail(Code::kBadRequest, "cannot listen on " + host + ": not an IP address");
  return tcp::endpoint(address, port);
}

Result<tcp::acceptor> Bind(const asio::any_io_executor& ex, const tcp::endpoint& endpoint) {
  tcp::acceptor acceptor(ex);
  boost::system::error_code ec;
  acceptor.open(endpoint.protocol(), ec);
  if (!ec) fcntl(acceptor.native_handle(), F_SETFD, FD_CLOEXEC);
  if (!ec) acceptor.set_option(tcp::acceptor::reuse_address(true), ec);
  if (!ec) acceptor.bind(endpoint, ec);
  if (!ec) acceptor.listen(1024, ec);
  if (!ec) acceptor.native_non_blocking(true, ec);
  if (!ec) return acceptor;
  const std::string where = endpoint.address().to_string() + ":" + std::to_string(endpoint.port());
  return std::unexpected(FromAsio(ec, "cannot listen on " + where));
}

}  // namespace

std::string_view HttpRequest::Get(std::string_view name) const {
  return wire::FindField(headers, name);
}

bool HttpRequest::Has(std::string_view name) const {
  return wire::HasField(headers, name);
}

Result<std::unique_ptr<HttpServer>> ListenHttp(asio::any_io_executor ex, const std::string& host, uint16_t port,
                                               HttpServerOptions options, HttpHandler handler,
                                               std::function<HttpResponse(const Error&)> on_error) {
  TlsContext tls;
  if (options.tls_cert_file.empty() != options.tls_key_file.empty())
    return Fail(Code::kBadRequest, "a TLS certificate needs its key and a key its certificate");
  if (!options.tls_cert_file.empty()) {
    SB_TRY(tls, MakeServerTls(options.tls_cert_file, options.tls_key_file));
    if (!options.other_tls_suffix.empty()) {
      SB_TRY(TlsContext other, MakeServerTls(options.other_tls_cert_file, options.other_tls_key_file));
      SB_TRYV(AddTlsName(tls, options.other_tls_suffix, std::move(other)));
    }
  }
  SB_TRY(auto endpoint, ParseEndpoint(host, port));
  SB_TRY(auto acceptor, Bind(ex, endpoint));
  HttpServerShared shared{std::move(options), std::move(handler), std::move(on_error), {}};
  return std::make_unique<Server>(ex, std::move(acceptor), std::move(shared), std::move(tls));
}

}  // namespace sandbar::http
