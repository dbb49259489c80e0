// The egress path against a plain veth with NAT, in one run and interleaved: bytes per second both ways, what a connect
// costs, what a TLS connect decided by its server name costs, 1,000 connections of one sandbox, 50 sandboxes with 40
// each. Medians and ratios, no promises.
//
//   net [--rounds N] [--megabytes N]
//
// Everything happens in network namespaces of its own: the server's, the host's (where the egress engine runs), one
// behind veth and NAT, and one per sandbox without any interface, as machines have it. Root; links the server's own
// libraries; bench/run.sh compiles and calls it.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <nftables/libnftables.h>
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/use_future.hpp>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "egress/egress.h"
#include "support/wire/client_hello_fixture.h"
#include "wire/dns.h"

namespace {

using namespace sandbar;
using Clock = std::chrono::steady_clock;
constexpr const char* kServer = "10.200.0.2";
constexpr uint16_t kPort = 9000;
constexpr const char* kName = "bench.test";
constexpr uint16_t kListenerPort = 1;

[[noreturn]] void Die(const std::string& what) {
  std::fprintf(stderr, "bench: %s: %s\n", what.c_str(), std::strerror(errno));
  std::exit(1);
}
double MicrosSince(Clock::time_point t) {
  return std::chrono::duration<double, std::micro>(Clock::now() - t).count();
}
// Processor time of a thread, in milliseconds: says what a path costs whatever else the host does.
double CpuMs(std::thread& thread) {
  clockid_t clock{};
  timespec t{};
  if (::pthread_getcpuclockid(thread.native_handle(), &clock) != 0 || ::clock_gettime(clock, &t) != 0) Die("cpu clock");
  return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) / 1e6;
}
double Median(std::vector<double> v) {
  std::ranges::sort(v);
  return v.empty() ? 0 : v[v.size() / 2];
}

// Namespaces belong to threads: what `f` opens and runs is inside.
void Inside(int ns, const std::function<void()>& f) {
  std::thread([&] {
    if (::setns(ns, CLONE_NEWNET) != 0) Die("setns");
    f();
  }).join();
}
int NewNamespace() {
  int fd = -1;
  std::thread([&] {
    if (::unshare(CLONE_NEWNET) != 0) Die("unshare");
    fd = ::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
  }).join();
  return fd;
}
void Command(const std::string& line) {
  if (std::system(line.c_str()) != 0) Die(line);  // NOLINT(cert-env33-c): fixed words only
}
void Rules(const char* text) {
  nft_ctx* ctx = nft_ctx_new(NFT_CTX_DEFAULT);
  if (nft_run_cmd_from_buffer(ctx, text) != 0) Die("nft");
  nft_ctx_free(ctx);
}
std::string PathOf(int ns) {
  return "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(ns);
}
// The algorithm that new connections of this namespace start with.
void Congestion(const char* name) {
  std::ofstream out("/proc/sys/net/ipv4/tcp_congestion_control");
  if (!(out << name << std::flush)) Die("congestion control");
}
// A veth between the host's namespace (here) and another; .1 is here, .2 there.
void Cable(int ns, const std::string& name, const std::string& net) {
  Command("ip link add h" + name + " type veth peer name " + name + " netns " + PathOf(ns));
  Command("ip addr add " + net + ".1/24 dev h" + name + " && ip link set h" + name + " up");
  Inside(ns, [&] {
    Command("ip link set lo up && ip addr add " + net + ".2/24 dev " + name + " && ip link set " + name + " up");
    Command("ip route add default via " + net + ".1");
  });
}

int Socket(int type) {
  int fd = ::socket(AF_INET, type | SOCK_CLOEXEC, 0);
  if (fd < 0) Die("socket");
  int on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  return fd;
}
sockaddr_in At(const char* address, uint16_t port) {
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_port = htons(port);
  ::inet_pton(AF_INET, address, &a.sin_addr);
  return a;
}
int Bound(int type, const char* address, uint16_t port) {
  int fd = Socket(type);
  sockaddr_in a = At(address, port);
  if (::bind(fd, reinterpret_cast<sockaddr*>(&a), sizeof(a)) != 0) Die("bind");
  if (type == SOCK_STREAM && ::listen(fd, 4096) != 0) Die("listen");
  return fd;
}
int Connect() {
  int fd = Socket(SOCK_STREAM);
  int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  sockaddr_in a = At(kServer, kPort);
  if (::connect(fd, reinterpret_cast<sockaddr*>(&a), sizeof(a)) != 0) Die("connect");
  return fd;
}
bool Exactly(int fd, char* data, size_t n, bool write) {
  while (n > 0) {
    ssize_t r = write ? ::send(fd, data, std::min<size_t>(n, 1 << 20), MSG_NOSIGNAL)
                      : ::recv(fd, data, std::min<size_t>(n, 1 << 20), 0);
    if (r <= 0) return false;
    n -= static_cast<size_t>(r);
  }
  return true;
}

// 'D' or 'U' and a count: sends or takes that many bytes. 'E': echoes bytes. Anything else (a ClientHello) gets a byte.
void ServeOne(int fd) {
  int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  static thread_local std::vector<char> buffer;
  char kind = 0;
  uint64_t count = 0;
  if (Exactly(fd, &kind, 1, false)) {
    if (kind == 'E') {
      for (char c = 0; Exactly(fd, &c, 1, false) && Exactly(fd, &c, 1, true);) {
      }
    } else if (kind == 'D' || kind == 'U') {
      buffer.resize(1 << 20);
      if (Exactly(fd, reinterpret_cast<char*>(&count), sizeof(count), false)) {
        for (uint64_t left = count; left > 0; left -= std::min<uint64_t>(left, buffer.size()))
          if (!Exactly(fd, buffer.data(), std::min<uint64_t>(left, buffer.size()), kind == 'D')) break;
        Exactly(fd, &kind, 1, true);
      }
    } else {
      Exactly(fd, &kind, 1, true);
      ::shutdown(fd, SHUT_WR);
      char rest[4096];
      while (::recv(fd, rest, sizeof(rest), 0) > 0) {
      }
    }
  }
  ::close(fd);
}
void Serve(int listener) {
  for (;;) {
    int fd = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd >= 0) std::thread(ServeOne, fd).detach();
  }
}
void ServeDns(int fd) {
  for (;;) {
    char in[1024];
    sockaddr_in from{};
    socklen_t len = sizeof(from);
    ssize_t n = ::recvfrom(fd, in, sizeof(in), 0, reinterpret_cast<sockaddr*>(&from), &len);
    if (n <= 0) continue;
    auto query = wire::ParseDnsQuery({in, static_cast<size_t>(n)});
    if (!query) continue;
    sockaddr_in a = At(kServer, 0);
    std::string out = wire::EncodeDnsAddress(*query, {reinterpret_cast<char*>(&a.sin_addr), 4}, 60);
    ::sendto(fd, out.data(), out.size(), 0, reinterpret_cast<sockaddr*>(&from), len);
  }
}

struct Sandbox {
  int ns = -1;
  std::unique_ptr<egress::Egress> egress;
};

class Bench {
 public:
  Bench(int rounds, uint64_t bytes) : rounds_(rounds), bytes_(bytes), work_(io_.get_executor()) {}
  void Run();

 private:
  void SetUp();
  Sandbox MakeSandbox();
  void SetPolicy(Sandbox& s, const egress::PolicyRef& policy);
  double Transfer(int ns, char kind) const;
  void Throughput(int ns, const char* what, char kind);
  static std::vector<double> Connects(int ns, const std::string& opening, int count);
  static void Many(const char* what, const std::vector<int>& spaces, int each);

  int rounds_;
  uint64_t bytes_;
  int server_ = -1, nat_ = -1;
  egress::EgressConfig config_;
  asio::io_context io_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  std::thread loop_;
};

void Bench::SetUp() {
  if (::unshare(CLONE_NEWNET) != 0) Die("unshare (root is needed)");
  Command("ip link set lo up");
  server_ = NewNamespace();
  nat_ = NewNamespace();
  Cable(server_, "srv", "10.200.0");
  Cable(nat_, "nat", "10.201.0");
  std::ofstream("/proc/sys/net/ipv4/ip_forward") << 1;
  Rules("table ip bench { chain post { type nat hook postrouting priority 100; oifname \"hsrv\" masquerade; }; }");
  Inside(server_, [] { std::thread(Serve, Bound(SOCK_STREAM, "0.0.0.0", kPort)).detach(); });
  std::thread(ServeDns, Bound(SOCK_DGRAM, "127.0.0.1", 5353)).detach();
  config_.resolver = "127.0.0.1:5353";
  config_.allow_addresses = {"10.200.0.0/24"};
  config_.budget = egress::BudgetFromFdLimit();
  loop_ = std::thread([this] { io_.run(); });
}

Sandbox Bench::MakeSandbox() {
  Sandbox out;
  out.ns = NewNamespace();
  int listener = -1, dns = -1;
  Inside(out.ns, [&] {
    Command("ip link set lo up && ip route add local 0.0.0.0/0 dev lo");
    Congestion("reno");
    Rules(
        "table ip sb { chain out { type nat hook output priority -100; ip daddr != 127.0.0.0/8 meta l4proto tcp "
        "redirect to :1; }; }");
    listener = Bound(SOCK_STREAM, "0.0.0.0", kListenerPort);
    dns = Bound(SOCK_DGRAM, "0.0.0.0", 53);
  });
  asio::post(io_, asio::use_future([&] {
               out.egress = egress::MakeEgress(io_.get_executor(), Fd(listener), Fd(dns), egress::AllowAll(), &config_);
             }))
      .get();
  return out;
}

void Bench::SetPolicy(Sandbox& s, const egress::PolicyRef& policy) {
  asio::post(io_, asio::use_future([&] { s.egress->SetPolicy(policy); })).get();
}

double Bench::Transfer(int ns, char kind) const {
  double gbit = 0;
  Inside(ns, [&] {
    std::vector<char> buffer(1 << 20);
    int fd = Connect();
    std::string head(1, kind);
    head.append(reinterpret_cast<const char*>(&bytes_), sizeof(bytes_));
    auto started = Clock::now();
    if (!Exactly(fd, head.data(), head.size(), true)) Die("send");
    for (uint64_t left = bytes_; left > 0; left -= std::min<uint64_t>(left, buffer.size()))
      if (!Exactly(fd, buffer.data(), std::min<uint64_t>(left, buffer.size()), kind == 'U')) Die("transfer");
    if (!Exactly(fd, head.data(), 1, false)) Die("end");
    gbit = static_cast<double>(bytes_) * 8 / MicrosSince(started) / 1000;
    ::close(fd);
  });
  return gbit;
}

void Bench::Throughput(int ns, const char* what, char kind) {
  std::vector<double> ours, nat, cpu;
  for (int i = 0; i < rounds_; ++i) {
    double before = CpuMs(loop_);
    ours.push_back(Transfer(ns, kind));
    cpu.push_back((CpuMs(loop_) - before) * static_cast<double>(1 << 30) / static_cast<double>(bytes_));
    nat.push_back(Transfer(nat_, kind));
  }
  std::printf("%-42s %.1f Gbit/s, veth+NAT %.1f: %.2f x (target >= 0.8), %.0f ms of processor per GiB\n", what,
              Median(ours), Median(nat), Median(ours) / Median(nat), Median(cpu));
}

// Microseconds from connect() to the first byte back.
std::vector<double> Bench::Connects(int ns, const std::string& opening, int count) {
  std::vector<double> out;
  Inside(ns, [&] {
    for (int i = 0; i < count; ++i) {
      std::string bytes = opening;
      char back = 0;
      auto started = Clock::now();
      int fd = Connect();
      if (!Exactly(fd, bytes.data(), bytes.size(), true) || !Exactly(fd, &back, 1, false)) Die("connect");
      out.push_back(MicrosSince(started));
      ::close(fd);
    }
  });
  return out;
}

// Opens them all, then every one must still echo.
void Bench::Many(const char* what, const std::vector<int>& spaces, int each) {
  auto started = Clock::now();
  std::vector<int> open;
  for (int ns : spaces) {
    Inside(ns, [&] {
      for (int i = 0; i < each; ++i) {
        open.push_back(Connect());
        char kind = 'E';
        if (!Exactly(open.back(), &kind, 1, true)) Die("send");
      }
    });
  }
  double opened = MicrosSince(started) / 1000;
  size_t served = 0;
  std::vector<double> echoes;
  for (int fd : open) {
    char c = 'x';
    auto at = Clock::now();
    timeval limit{.tv_sec = 10, .tv_usec = 0};
    ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    if (!Exactly(fd, &c, 1, true) || !Exactly(fd, &c, 1, false)) continue;
    ++served;
    echoes.push_back(MicrosSince(at));
  }
  std::printf("%-42s %zu of %zu served, opened in %.0f ms, echo %.0f us\n", what, served, open.size(), opened,
              Median(echoes));
  for (int fd : open) ::close(fd);
}

void Bench::Run() {
  SetUp();
  Sandbox box = MakeSandbox();
  Throughput(box.ns, "download", 'D');
  Throughput(box.ns, "upload", 'U');
  // A host that paces (bbr) slows the others down, not us: the same again where nobody does.
  for (int ns : {server_, nat_}) Inside(ns, [] { Congestion("reno"); });
  Throughput(box.ns, "download, nobody paces", 'D');
  Throughput(box.ns, "upload, nobody paces", 'U');
  constexpr int kConnects = 400;
  const std::string hello = wire::testing::Hello(wire::testing::Sni(kName) + std::string());
  auto ours = Connects(box.ns, "X", kConnects), nat = Connects(nat_, "X", kConnects);
  std::printf("%-42s %.0f us, veth+NAT %.0f: +%.0f us\n", "connect and one byte back", Median(ours), Median(nat),
              Median(ours) - Median(nat));
  egress::NetworkPolicy wanted{.mode = egress::EgressMode::kCustom};
  wanted.domains = {{kName, {}}};
  SetPolicy(box, *egress::Compile(wanted));
  ours = Connects(box.ns, hello, kConnects);
  nat = Connects(nat_, hello, kConnects);
  std::printf("%-42s %.0f us, veth+NAT %.0f: +%.0f us\n", "ClientHello by name and one byte back", Median(ours),
              Median(nat), Median(ours) - Median(nat));
  SetPolicy(box, egress::AllowAll());
  Many("1,000 connections of one sandbox", {box.ns}, 1000);
  std::vector<Sandbox> boxes;
  std::vector<int> spaces;
  for (int i = 0; i < 50; ++i) {
    boxes.push_back(MakeSandbox());
    spaces.push_back(boxes.back().ns);
  }
  Many("50 sandboxes with 40 connections each", spaces, 40);
  boxes.push_back(std::move(box));
  for (Sandbox& s : boxes) asio::co_spawn(io_, s.egress->Close(), asio::use_future).get();
  asio::post(io_, asio::use_future([&] { boxes.clear(); })).get();
  work_.reset();
  loop_.join();
}

}  // namespace

int main(int argc, char** argv) {
  int rounds = 9;
  uint64_t megabytes = 512;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::string_view(argv[i]) == "--rounds") rounds = std::atoi(argv[i + 1]);
    if (std::string_view(argv[i]) == "--megabytes") megabytes = std::strtoull(argv[i + 1], nullptr, 10);
  }
  ::signal(SIGPIPE, SIG_IGN);
  rlimit fds{.rlim_cur = 65536, .rlim_max = 65536};
  ::setrlimit(RLIMIT_NOFILE, &fds);
  Bench(rounds, megabytes << 20).Run();
  std::fflush(stdout);
  ::_exit(0);  // the servers' threads have no end of their own
}
