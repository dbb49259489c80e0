// Test support: an Egress under a custom policy with a resolver, servers and an interceptor that the test plays itself.
// Only *_test.cc files include this.
#pragma once

#include <poll.h>

#include <atomic>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "egress/first_bytes.h"
#include "egress/intercept.h"
#include "egress/stream_io.h"
#include "support/egress/egress_fixture.h"
#include "support/wire/client_hello_fixture.h"
#include "wire/dns.h"

namespace sandbar::egress::testing {

// A resolver on loopback that knows the A records it was given and remembers what it was asked.
class FakeResolver {
 public:
  FakeResolver() : socket_(BoundSocket(SOCK_DGRAM)), thread_([this] { Serve(); }) {}
  ~FakeResolver() {
    stop_ = true;
    thread_.join();
  }
  std::string endpoint() { return "127.0.0.1:" + std::to_string(PortOf(socket_.get())); }
  void Add(const std::string& name, const std::string& address) {
    std::lock_guard lock(mutex_);
    records_[name] = address;
  }
  std::vector<std::string> asked() {
    std::lock_guard lock(mutex_);
    return asked_;
  }

 private:
  void Serve() {
    while (!stop_) {
      pollfd p{socket_.get(), POLLIN, 0};
      if (::poll(&p, 1, 20) <= 0) continue;
      std::string in(2048, '\0');
      sockaddr_storage from{};
      socklen_t len = sizeof(from);
      ssize_t n = ::recvfrom(socket_.get(), in.data(), in.size(), 0, reinterpret_cast<sockaddr*>(&from), &len);
      auto query = wire::ParseDnsQuery({in.data(), static_cast<size_t>(std::max<ssize_t>(n, 0))});
      if (!query) continue;
      std::string answer = Answer(*query);
      ::sendto(socket_.get(), answer.data(), answer.size(), 0, reinterpret_cast<sockaddr*>(&from), len);
    }
  }
  std::string Answer(const wire::DnsQuery& query) {
    std::lock_guard lock(mutex_);
    std::string name = wire::DnsNameText(query.name);
    asked_.push_back(name);
    auto record = records_.find(name);
    if (record == records_.end()) return wire::EncodeDnsError(query, wire::DnsRcode::kNxDomain, 0, "");
    if (query.type != wire::kDnsTypeA) return wire::EncodeDnsError(query, wire::DnsRcode::kNoError, 0, "");
    return wire::EncodeDnsAddress(query, ToRawV4(*ParseAddress(record->second)), 1);
  }

  Fd socket_;
  std::mutex mutex_;
  std::map<std::string, std::string> records_;
  std::vector<std::string> asked_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

// Says what it was given and lets the hosts through that the test names. Everything that the guest sends after that is
// one more request, and is answered with "more".
class FakeInterceptor final : public Interceptor {
 public:
  Task<> Serve(InterceptJob job) override {
    std::string said = std::string(job.tls ? "tls " : "http ") + job.name + " " + job.first_bytes.substr(0, 3);
    for (const std::string& host : hosts) job.on_host(host);
    auto written = co_await WriteAll(job.guest, std::move(said));
    if (!written) co_return written;
    for (;;) {
      auto more = co_await egress::ReadSome(job.guest, 4096);
      if (!more || more->empty()) co_return Result<>{};
      for (const std::string& host : hosts) job.on_host(host);
      written = co_await WriteAll(job.guest, "more");
      if (!written) co_return written;
    }
  }
  std::string CaCertificate(const CompiledPolicy&) override { return {}; }

  std::vector<std::string> hosts;  // change it on the loop's thread only
};

inline PolicyRef Custom(const std::vector<std::string>& domains, const std::vector<std::string>& allow = {},
                        const std::vector<std::string>& deny = {}) {
  NetworkPolicy policy{.mode = EgressMode::kCustom};
  for (const auto& d : domains) policy.domains.push_back({d, {}});
  policy.allow_cidrs = allow;
  policy.deny_cidrs = deny;
  auto compiled = Compile(policy);
  EXPECT_TRUE(compiled) << compiled.error().message;
  return *compiled;
}

// A domain with one rule: a header that is set on every request.
inline PolicyRef Ruled(const std::string& domain, const std::string& secret) {
  NetworkPolicy policy{.mode = EgressMode::kCustom};
  Rule rule{.match = {}, .action = TransformAction{{{"authorization", secret}}}};
  policy.domains.push_back({domain, {rule}});
  return *Compile(policy);
}

class EgressCustomTest : public EgressTest {
 protected:
  EgressCustomTest() : server_(BoundSocket(SOCK_STREAM)) {
    config_.resolver = resolver_.endpoint();
    config_.allow_addresses = {"127.0.0.0/8"};
    // The guest's own idea of where the name lives: it must not matter.
    SetTarget(Endpoint{*ParseAddress("203.0.113.9"), PortOf(server_.get())});
    resolver_.Add("api.example.test", "127.0.0.1");
    resolver_.Add("other.example.test", "127.0.0.1");
  }
  ~EgressCustomTest() override { StopLoop(); }
  Fd Connected(const std::string& first_bytes) {
    Fd guest = Dial(tcp_port_);
    EXPECT_TRUE(SendAll(guest.get(), first_bytes));
    return guest;
  }
  bool ServerWasReached() {
    pollfd p{server_.get(), POLLIN, 0};
    return ::poll(&p, 1, 0) > 0;
  }
  // The guest must get the TLS alert, the server no connection. Gives the denial.
  Denial ExpectAlert(const std::string& first_bytes) {
    Fd guest = Connected(first_bytes);
    EXPECT_EQ(ReadSome(guest.get(), 7), std::string("\x15\x03\x03\x00\x02\x02\x31", 7));
    ::shutdown(guest.get(), SHUT_WR);
    EXPECT_EQ(ReadToEnd(guest.get()).error, 0);
    EXPECT_FALSE(ServerWasReached());
    auto denials = Denials();
    EXPECT_FALSE(denials.empty());
    return denials.empty() ? Denial{} : denials.back();
  }
  // An open connection by that hello, with both ends.
  std::pair<Fd, Fd> Pair(const std::string& first_bytes) {
    Fd guest = Connected(first_bytes);
    Fd server = AcceptOne(server_.get());
    EXPECT_EQ(ReadSome(server.get(), first_bytes.size()), first_bytes);
    return {std::move(guest), std::move(server)};
  }
  static bool Works(int guest, int server) {
    return SendAll(guest, "ping") && ReadSome(server, 4) == "ping" && SendAll(server, "pong") &&
           ReadSome(guest, 4) == "pong";
  }

  FakeResolver resolver_;
  FakeInterceptor fake_;
  Fd server_;
};

}  // namespace sandbar::egress::testing
