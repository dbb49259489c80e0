// Test support: an Interceptor whose loop runs in its own thread, guests and upstreams as blocking sockets on loopback
// with OpenSSL on top, and a resolver that knows every name. Only *_test.cc files include this.
#pragma once

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <atomic>
#include <csignal>

#include "egress/intercept.h"
#include "support/egress/egress_fixture.h"
#include "support/http/raw_client.h"

namespace sandbar::egress::testing {

struct Message {
  wire::HttpHead head;
  std::string body;
  bool ok = false;
};

// One end of a connection, plain or TLS, blocking. Reads give up after a generous while.
class Peer {
 public:
  explicit Peer(Fd fd) : fd_(std::move(fd)) {
    SetTimeouts(fd_.get());
    int on = 1;
    ::setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  }
  Peer(Peer&&) = default;
  ~Peer() {
    if (ssl_ && SSL_is_init_finished(ssl_.get()) != 0) SSL_shutdown(ssl_.get());
  }

  bool Accept(SSL_CTX* context) {
    Attach(context);
    return SSL_accept(ssl_.get()) == 1;
  }
  // Verifies against the context's store.
  bool Connect(SSL_CTX* context, const std::string& name) {
    Attach(context);
    SSL_set_tlsext_host_name(ssl_.get(), name.c_str());
    SSL_set1_host(ssl_.get(), name.c_str());
    return SSL_connect(ssl_.get()) == 1;
  }
  bool Send(std::string_view bytes) {
    if (!ssl_) return SendAll(fd_.get(), bytes);
    return bytes.empty() || SSL_write(ssl_.get(), bytes.data(), static_cast<int>(bytes.size())) > 0;
  }
  // Some bytes; empty at the end or when broken.
  std::string ReadSome() {
    std::string out(64 << 10, '\0');
    ssize_t n = ssl_ ? SSL_read(ssl_.get(), out.data(), static_cast<int>(out.size()))
                     : ::recv(fd_.get(), out.data(), out.size(), 0);
    error_ = n < 0 ? errno : 0;
    out.resize(n < 0 ? 0 : static_cast<size_t>(n));
    return out;
  }
  // What is next, wanted or not; at most `n` bytes.
  std::string ReadBytes(size_t n) {
    while (pending_.size() < n) {
      std::string more = ReadSome();
      if (more.empty()) break;
      pending_ += more;
    }
    std::string out = pending_.substr(0, n);
    pending_.erase(0, out.size());
    return out;
  }
  std::string ReadAll() { return ReadBytes(SIZE_MAX); }
  Message Read(wire::HttpKind kind, bool head_only = false) {
    wire::HttpParser parser(kind);
    if (head_only) parser.ExpectNoBody();
    Message out;
    while (!parser.done()) {
      if (pending_.empty()) pending_ = ReadSome();
      if (pending_.empty()) {
        out.ok = parser.Eof().has_value();
        break;
      }
      auto used = parser.Feed(pending_, &out.body);
      if (!used) break;
      pending_.erase(0, *used);
    }
    out.ok = out.ok || parser.done();
    out.head = parser.head();
    return out;
  }
  Message Answer(bool head_only = false) { return Read(wire::HttpKind::kResponse, head_only); }
  Message Ask(const std::string& bytes) {
    EXPECT_TRUE(Send(bytes));
    return Answer();
  }
  int fd() const { return fd_.get(); }
  int error() const { return error_; }
  SSL* ssl() const { return ssl_.get(); }

 private:
  void Attach(SSL_CTX* context) {
    ssl_.reset(SSL_new(context));
    SSL_set_fd(ssl_.get(), fd_.get());
  }
  Fd fd_;
  std::unique_ptr<SSL, void (*)(SSL*)> ssl_{nullptr, SSL_free};
  std::string pending_;
  int error_ = 0;
};

// An HTTP server that remembers what it was sent. The handler answers; false closes the connection.
class Upstream {
 public:
  using Handler = std::function<bool(Peer&, const Message&)>;
  static bool Ok(Peer& peer, const Message& request) {
    std::string body = request.head.method == "HEAD" ? "" : "hello";
    return peer.Send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n" + body);
  }
  // `certificate` null: plain HTTP.
  explicit Upstream(const http::TestCertificate* certificate, Handler handler = Ok)
      : handler_(std::move(handler)), listener_(BoundSocket(SOCK_STREAM)), port_(PortOf(listener_.get())) {
    if (certificate != nullptr) {
      context_.reset(SSL_CTX_new(TLS_server_method()));
      EXPECT_EQ(SSL_CTX_use_certificate_chain_file(context_.get(), certificate->cert().c_str()), 1);
      EXPECT_EQ(SSL_CTX_use_PrivateKey_file(context_.get(), certificate->key().c_str(), SSL_FILETYPE_PEM), 1);
    }
    thread_ = std::thread([this] { Run(); });
  }
  ~Upstream() {
    stopping_ = true;
    ::shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
    {
      std::lock_guard lock(mutex_);
      for (int fd : open_) ::shutdown(fd, SHUT_RDWR);
    }
    for (auto& t : connections_) t.join();
  }
  uint16_t port() const { return port_; }
  int accepted() const { return accepted_; }
  std::vector<Message> seen() {
    std::lock_guard lock(mutex_);
    return seen_;
  }

 private:
  void Run() {
    while (!stopping_) {
      Fd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!fd) continue;
      ++accepted_;
      std::lock_guard lock(mutex_);
      open_.push_back(fd.get());
      connections_.emplace_back([this, raw = fd.Release()] { Serve(Fd(raw)); });
    }
  }
  void Serve(Fd fd) {
    const int raw = fd.get();
    Peer peer(std::move(fd));
    for (bool more = !context_ || peer.Accept(context_.get()); more;) {
      Message request = peer.Read(wire::HttpKind::kRequest);
      if (request.head.method.empty()) break;
      {
        std::lock_guard lock(mutex_);
        seen_.push_back(request);
      }
      more = request.ok && handler_(peer, request);
    }
    std::lock_guard lock(mutex_);
    std::erase(open_, raw);
  }

  Handler handler_;
  Fd listener_;
  uint16_t port_;
  std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context_{nullptr, SSL_CTX_free};
  std::atomic<bool> stopping_ = false;
  std::atomic<int> accepted_ = 0;
  std::mutex mutex_;
  std::vector<int> open_;
  std::vector<Message> seen_;
  std::vector<std::thread> connections_;
  std::thread thread_;
};

// Answers every A query: 127.0.0.1, or 10.0.0.1 for names that begin with "rebound".
class Resolver {
 public:
  Resolver() : socket_(BoundSocket(SOCK_DGRAM)), thread_([this] { Run(); }) {}
  ~Resolver() {
    stopping_ = true;
    Fd poke = Dial(PortOf(socket_.get()), SOCK_DGRAM);
    ::send(poke.get(), "", 1, 0);
    thread_.join();
  }
  std::string endpoint() { return "127.0.0.1:" + std::to_string(PortOf(socket_.get())); }

 private:
  void Run() {
    while (!stopping_) {
      std::string query(2048, '\0');
      sockaddr_storage from{};
      socklen_t length = sizeof(from);
      ssize_t n = ::recvfrom(socket_.get(), query.data(), query.size(), 0, reinterpret_cast<sockaddr*>(&from), &length);
      if (n < 17) continue;
      query.resize(static_cast<size_t>(n));
      const size_t end = query.find('\0', 12) + 5;  // behind the question's name, type and class
      std::string reply = query.substr(0, end);
      const bool rebound = query.substr(13, 7) == "rebound";
      reply.replace(2, 10, std::string("\x81\x80\0\1\0\1\0\0\0\0", 10));
      reply += std::string("\xc0\x0c\0\1\0\1\0\0\0\4\0\4", 12);
      reply += rebound ? std::string("\x0a\0\0\1", 4) : std::string("\x7f\0\0\1", 4);
      ::sendto(socket_.get(), reply.data(), reply.size(), 0, reinterpret_cast<sockaddr*>(&from), length);
    }
  }
  Fd socket_;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

class InterceptTest : public ::testing::Test {
 protected:
  template <class F>
  auto OnLoop(F f) {
    std::packaged_task<decltype(f())()> task(std::move(f));
    auto future = task.get_future();
    asio::post(io_, [&task] { task(); });
    return future.get();
  }
  InterceptTest() : certificate_("DNS:api.test,DNS:*.api.test,DNS:forward.test"), work_(io_.get_executor()) {
    std::signal(SIGPIPE, SIG_IGN);  // for the test's own OpenSSL
    config_.resolver = resolver_.endpoint();
    config_.allow_addresses = {"127.0.0.1/32"};
    state_.config = &config_;
    options_.seed = std::string(32, 's');
    options_.upstream_ca_file = certificate_.cert();
    options_.identity = {"team_1", "prj_1", "sbx_1", "box"};
    options_.matching = &matching_;
  }
  ~InterceptTest() override {
    if (group_) {
      asio::co_spawn(io_.get_executor(), group_->Close(), asio::use_future).get();
      OnLoop([this] { interceptor_.reset(); });
    }
    work_.reset();
    if (thread_.joinable()) thread_.join();
  }

  void Start(std::vector<DomainEntry> domains) {
    NetworkPolicy policy{.mode = EgressMode::kCustom, .domains = std::move(domains)};
    auto compiled = Compile(std::move(policy));
    ASSERT_TRUE(compiled) << compiled.error().message;
    policy_ = *compiled;
    auto made = MakeInterceptor(io_.get_executor(), options_);
    ASSERT_TRUE(made) << made.error().message;
    interceptor_ = *std::move(made);
    group_.emplace(io_.get_executor());
    thread_ = std::thread([this] { io_.run(); });
  }
  static Task<> Serve(InterceptTest* test, Stream guest, InterceptJob job) {
    job.guest = &guest;
    auto served = co_await test->interceptor_->Serve(std::move(job));
    co_return served;
  }
  // The guest's end of a connection to `port` that is being intercepted.
  Fd Redirected(bool tls, const std::string& name, uint16_t port, const std::string& first_bytes = "") {
    Fd listener = BoundSocket(SOCK_STREAM);
    Fd guest = Dial(PortOf(listener.get()));
    Fd ours = AcceptOne(listener.get());
    int on = 1;
    ::setsockopt(ours.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    OnLoop([&] {
      InterceptJob job{.first_bytes = first_bytes, .tls = tls, .target = Local(port), .name = name, .policy = policy_};
      job.state = &state_;
      job.on_host = [this](const std::string& host) {
        hosts_.push_back(host);
        return host != "cut.test";
      };
      group_->Spawn(Serve(this, *MakeStream(io_.get_executor(), std::move(ours)), std::move(job)));
    });
    return guest;
  }
  Peer Plain(uint16_t port, const std::string& first_bytes = "") {
    return Peer(Redirected(false, "", port, first_bytes));
  }
  Peer Tls(uint16_t port, const std::string& name = "api.test") {
    Peer peer(Redirected(true, name, port));
    EXPECT_TRUE(peer.Connect(GuestTls("\x08http/1.1"), name)) << ERR_reason_error_string(ERR_peek_last_error());
    return peer;
  }
  // A client's context that trusts the machine's CA alone.
  SSL_CTX* GuestTls(const std::string& alpn) {
    guest_tls_.reset(SSL_CTX_new(TLS_client_method()));
    std::string pem = OnLoop([this] { return interceptor_->CaCertificate(*policy_); });
    std::unique_ptr<BIO, int (*)(BIO*)> in(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())), BIO_free);
    std::unique_ptr<X509, void (*)(X509*)> ca(PEM_read_bio_X509(in.get(), nullptr, nullptr, nullptr), X509_free);
    X509_STORE_add_cert(SSL_CTX_get_cert_store(guest_tls_.get()), ca.get());
    SSL_CTX_set_verify(guest_tls_.get(), SSL_VERIFY_PEER, nullptr);
    SSL_CTX_set_alpn_protos(guest_tls_.get(), reinterpret_cast<const unsigned char*>(alpn.data()),
                            static_cast<unsigned>(alpn.size()));
    return guest_tls_.get();
  }
  std::vector<Denial> Denials() {
    return OnLoop([this] { return std::vector<Denial>(state_.denials.begin(), state_.denials.end()); });
  }

  static Rule Inject(std::vector<NameValue> headers, std::optional<RequestMatch> match = std::nullopt) {
    return {std::move(match), TransformAction{std::move(headers)}};
  }

  Resolver resolver_;
  http::TestCertificate certificate_;
  asio::thread_pool matching_{1};
  EgressConfig config_;
  EgressState state_;
  InterceptorOptions options_;
  PolicyRef policy_;
  asio::io_context io_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> guest_tls_{nullptr, SSL_CTX_free};
  std::vector<std::string> hosts_;  // of the loop
  std::unique_ptr<Interceptor> interceptor_;
  std::optional<TaskGroup> group_;
  std::thread thread_;
};

inline std::string Get(const std::string& host, const std::string& target = "/", const std::string& more = "") {
  return "GET " + target + " HTTP/1.1\r\nHost: " + host + "\r\n" + more + "\r\n";
}

}  // namespace sandbar::egress::testing
