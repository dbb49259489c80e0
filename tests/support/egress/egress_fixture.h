// Test support: an Egress whose loop runs in its own thread, with plain blocking sockets on loopback as guest and as
// upstream. Only *_test.cc files include this.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/use_future.hpp>
#include <csignal>
#include <future>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/fd.h"
#include "egress/egress.h"

namespace sandbar::egress::testing {

inline Endpoint Local(uint16_t port) {
  return {*ParseAddress("127.0.0.1"), port};
}

inline uint16_t PortOf(int fd) {
  sockaddr_storage ss{};
  socklen_t len = sizeof(ss);
  EXPECT_EQ(::getsockname(fd, reinterpret_cast<sockaddr*>(&ss), &len), 0);
  return FromSockaddr(ss)->port;
}

// A blocking socket bound to 127.0.0.1 on a free port; reads give up after a generous while, so a broken test ends.
inline Fd BoundSocket(int type) {
  Fd fd(::socket(AF_INET, type | SOCK_CLOEXEC, 0));
  sockaddr_storage ss{};
  socklen_t len = ToSockaddr(Local(0), ss);
  EXPECT_EQ(::bind(fd.get(), reinterpret_cast<sockaddr*>(&ss), len), 0);
  EXPECT_TRUE(type != SOCK_STREAM || ::listen(fd.get(), 512) == 0);
  return fd;
}

inline void SetTimeouts(int fd, int seconds = 20) {
  timeval tv{.tv_sec = seconds, .tv_usec = 0};
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
  ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv));
}

inline Fd Dial(uint16_t port, int type = SOCK_STREAM) {
  Fd fd(::socket(AF_INET, type | SOCK_CLOEXEC, 0));
  SetTimeouts(fd.get());
  sockaddr_storage ss{};
  socklen_t len = ToSockaddr(Local(port), ss);
  EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&ss), len), 0) << strerror(errno);
  return fd;
}

inline Fd AcceptOne(int listener) {
  SetTimeouts(listener);
  Fd fd(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
  EXPECT_TRUE(fd) << strerror(errno);
  SetTimeouts(fd.get());
  return fd;
}

inline bool SendAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    ssize_t n = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

struct Received {
  std::string bytes;
  int error = 0;  // 0: the stream ended properly
};

inline Received ReadToEnd(int fd) {
  Received out;
  char buffer[65536];
  for (;;) {
    ssize_t n = ::recv(fd, buffer, sizeof(buffer), 0);
    if (n == 0) return out;
    if (n < 0) {
      out.error = errno;
      return out;
    }
    out.bytes.append(buffer, static_cast<size_t>(n));
  }
}

inline std::string ReadSome(int fd, size_t n) {
  std::string out(n, '\0');
  ssize_t r = ::recv(fd, out.data(), n, MSG_WAITALL);
  out.resize(r < 0 ? 0 : static_cast<size_t>(r));
  return out;
}

class EgressTest : public ::testing::Test {
 protected:
  EgressTest() : work_(io_.get_executor()) {
    ::signal(SIGPIPE, SIG_IGN);  // as the server does
    config_.resolver = "127.0.0.1:9";
    config_.protocol_timeout = std::chrono::milliseconds(300);
  }
  ~EgressTest() override { StopLoop(); }
  // Before anything goes that the loop may still look at: members of derived fixtures go before this one.
  void StopLoop() {
    if (egress_) Close();
    work_.reset();
    if (thread_.joinable()) thread_.join();
  }

  void Start(EgressMode mode) { Start(mode == EgressMode::kAllowAll ? AllowAll() : DenyAll()); }
  void Start(PolicyRef policy) {
    Fd tcp = BoundSocket(SOCK_STREAM), dns = BoundSocket(SOCK_DGRAM);
    tcp_port_ = PortOf(tcp.get());
    dns_port_ = PortOf(dns.get());
    auto original = [this](int) -> Result<Endpoint> {
      std::lock_guard lock(mutex_);
      if (!target_) return Fail(Code::kIo, "not redirected");
      return *target_;
    };
    egress_ = MakeEgress(io_.get_executor(), std::move(tcp), std::move(dns), std::move(policy), &config_, interceptor_,
                         original);
    thread_ = std::thread([this] { io_.run(); });
  }
  template <class F>
  auto OnLoop(F f) {
    std::packaged_task<decltype(f())()> task(std::move(f));
    auto future = task.get_future();
    asio::post(io_, [&task] { task(); });
    return future.get();
  }
  void Close() {
    asio::co_spawn(io_.get_executor(), egress_->Close(), asio::use_future).get();
    OnLoop([this] { egress_.reset(); });
  }
  void SetTarget(std::optional<Endpoint> target) {
    std::lock_guard lock(mutex_);
    target_ = target;
  }
  EgressCounters Counters() {
    return OnLoop([this] { return egress_->counters(); });
  }
  std::vector<Denial> Denials() {
    return OnLoop([this] { return egress_->denials(); });
  }
  std::vector<Attempt> Attempts() {
    return OnLoop([this] { return egress_->attempts(); });
  }
  void SetMode(EgressMode mode) { SetPolicy(mode == EgressMode::kAllowAll ? AllowAll() : DenyAll()); }
  void SetPolicy(PolicyRef policy) {
    OnLoop([this, policy] { egress_->SetPolicy(policy); });
  }

  EgressConfig config_;
  Interceptor* interceptor_ = nullptr;
  asio::io_context io_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  std::mutex mutex_;
  std::optional<Endpoint> target_;
  uint16_t tcp_port_ = 0, dns_port_ = 0;
  std::unique_ptr<Egress> egress_;
  std::thread thread_;
};

}  // namespace sandbar::egress::testing
