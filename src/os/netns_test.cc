#include "os/netns.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/netfilter_ipv4.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "support/os/netns_fixture.h"

namespace sandbar::os {
namespace {

std::string Congestion(const Fd& fd) {
  std::array<char, 16> name{};
  socklen_t len = name.size();
  return ::getsockopt(fd.get(), IPPROTO_TCP, TCP_CONGESTION, name.data(), &len) == 0 ? name.data() : "?";
}

class LocalNet : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root";
    auto net = CreateLocalNet();
    ASSERT_TRUE(net) << net.error().message;
    net_ = std::move(*net);
  }

  pid_t Inside(const std::function<int()>& f) { return RunIn(net_.netns, f); }

  MachineNet net_;
};

TEST_F(LocalNet, CallerStaysInItsOwnNamespace) {
  struct stat own{}, made{};
  ASSERT_EQ(::stat("/proc/self/ns/net", &own), 0);
  ASSERT_EQ(::fstat(net_.netns.get(), &made), 0);
  EXPECT_NE(own.st_ino, made.st_ino);
}

TEST_F(LocalNet, TcpToAnywhereArrivesAtTheListenerWithItsTarget) {
  pid_t child = Inside([] {
    Fd fd = Socket(SOCK_STREAM);
    if (Connect(fd, "203.0.113.7", 443) != 0) return 1;
    char buf[8] = {};
    if (::send(fd.get(), "hello", 5, 0) != 5 || ::recv(fd.get(), buf, 5, MSG_WAITALL) != 5) return 2;
    return std::string_view(buf) == "world" ? 0 : 3;
  });
  ASSERT_TRUE(Readable(net_.tcp.get()));
  Fd conn(::accept4(net_.tcp.get(), nullptr, nullptr, SOCK_CLOEXEC));
  ASSERT_TRUE(conn);
  EXPECT_EQ(OriginalTarget(conn), "203.0.113.7:443");
  char buf[8] = {};
  ASSERT_EQ(::recv(conn.get(), buf, 5, MSG_WAITALL), 5);
  EXPECT_STREQ(buf, "hello");
  ASSERT_EQ(::send(conn.get(), "world", 5, 0), 5);
  EXPECT_EQ(Wait(child), 0);
}

TEST_F(LocalNet, NothingIsPacedBetweenAMachineAndItsListener) {
  pid_t child = Inside([] {
    Fd fd = Socket(SOCK_STREAM);
    return Connect(fd, "203.0.113.7", 443) == 0 && Congestion(fd) == "reno" ? 0 : 1;
  });
  ASSERT_TRUE(Readable(net_.tcp.get()));
  Fd conn(::accept4(net_.tcp.get(), nullptr, nullptr, SOCK_CLOEXEC));
  EXPECT_EQ(Congestion(conn), "reno");
  EXPECT_EQ(Wait(child), 0);
}

// A guest may choose its source address freely; 127.0.0.1 must not make the answers untracked.
TEST_F(LocalNet, TcpFromALoopbackSourceIsRedirectedToo) {
  pid_t child = Inside([] {
    Fd fd = Socket(SOCK_STREAM);
    sockaddr_in from = Address("127.0.0.1", 0);
    if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&from), sizeof from) != 0) return 1;
    if (Connect(fd, "203.0.113.9", 80) != 0) return 2;
    char c = 0;
    return ::recv(fd.get(), &c, 1, 0) == 1 ? 0 : 3;
  });
  ASSERT_TRUE(Readable(net_.tcp.get()));
  Fd conn(::accept4(net_.tcp.get(), nullptr, nullptr, SOCK_CLOEXEC));
  EXPECT_EQ(OriginalTarget(conn), "203.0.113.9:80");
  ASSERT_EQ(::send(conn.get(), "x", 1, 0), 1);
  EXPECT_EQ(Wait(child), 0);
}

TEST_F(LocalNet, LoopbackIsTheMachinesOwn) {
  EXPECT_EQ(Wait(Inside([] {
              Fd server = Socket(SOCK_STREAM);
              sockaddr_in a = Address("127.0.0.1", 3000);
              if (::bind(server.get(), reinterpret_cast<sockaddr*>(&a), sizeof a) != 0) return 1;
              if (::listen(server.get(), 8) != 0) return 2;
              Fd client = Socket(SOCK_STREAM);
              if (Connect(client, "127.0.0.1", 3000) != 0) return 3;
              Fd conn(::accept(server.get(), nullptr, nullptr));
              char c = 0;
              if (::send(client.get(), "x", 1, 0) != 1 || ::recv(conn.get(), &c, 1, 0) != 1) return 4;
              // UDP between own processes, on the DNS port of another loopback address, too.
              Fd udp = Socket(SOCK_DGRAM);
              sockaddr_in u = Address("127.0.0.53", 53);
              if (::bind(udp.get(), reinterpret_cast<sockaddr*>(&u), sizeof u) != 0) return 5;
              Fd from = Socket(SOCK_DGRAM);
              if (Connect(from, "127.0.0.53", 53) != 0 || ::send(from.get(), "q", 1, 0) != 1) return 6;
              return ::recv(udp.get(), &c, 1, 0) == 1 && c == 'q' ? 0 : 7;
            })),
            0);
  EXPECT_FALSE(Pending(net_.dns));
}

TEST_F(LocalNet, Ipv6LoopbackWorksAndTheRestIsUnreachableAtOnce) {
  EXPECT_EQ(Wait(Inside([] {
              Fd server(::socket(AF_INET6, SOCK_STREAM, 0));
              sockaddr_in6 a{};
              a.sin6_family = AF_INET6;
              a.sin6_port = htons(3001);
              a.sin6_addr = in6addr_loopback;
              if (::bind(server.get(), reinterpret_cast<sockaddr*>(&a), sizeof a) != 0) return 1;
              if (::listen(server.get(), 8) != 0) return 2;
              Fd client(::socket(AF_INET6, SOCK_STREAM, 0));
              if (::connect(client.get(), reinterpret_cast<sockaddr*>(&a), sizeof a) != 0) return 3;
              Fd far(::socket(AF_INET6, SOCK_STREAM, 0));
              sockaddr_in6 b = a;
              if (inet_pton(AF_INET6, "2001:db8::1", &b.sin6_addr) != 1) return 4;
              if (::connect(far.get(), reinterpret_cast<sockaddr*>(&b), sizeof b) == 0) return 5;
              return errno == ENETUNREACH ? 0 : 100 + errno % 100;
            })),
            0);
}

TEST_F(LocalNet, TheListenerCannotBeReachedDirectly) {
  EXPECT_EQ(Wait(Inside([] {
              int i = 1;
              for (const char* ip : {"127.0.0.1", "127.0.0.2", "0.0.0.0", "203.0.113.7", "10.0.0.1"}) {
                Fd tcp = Socket(SOCK_STREAM);
                // Refused at once, not after a timeout.
                if (Connect(tcp, ip, 1) != ECONNREFUSED) return i;
                ++i;
                Fd udp = Socket(SOCK_DGRAM);
                char c = 0;
                if (Connect(udp, ip, 1) == 0 && ::send(udp.get(), "x", 1, 0) == 1 && ::recv(udp.get(), &c, 1, 0) >= 0)
                  return i;
                ++i;
              }
              return 0;
            })),
            0);
  EXPECT_FALSE(Pending(net_.tcp));
  EXPECT_FALSE(Pending(net_.dns));
}

TEST_F(LocalNet, DnsArrivesAndTheAnswerComesFromTheServerThatWasAsked) {
  pid_t child = Inside([] {
    Fd fd = Socket(SOCK_DGRAM);
    sockaddr_in to = Address("192.0.2.53", 53);
    if (::sendto(fd.get(), "query", 5, 0, reinterpret_cast<sockaddr*>(&to), sizeof to) != 5) return 1;
    sockaddr_in from{};
    socklen_t size = sizeof from;
    char buf[16] = {};
    if (::recvfrom(fd.get(), buf, sizeof buf, 0, reinterpret_cast<sockaddr*>(&from), &size) != 6) return 2;
    if (from.sin_addr.s_addr != to.sin_addr.s_addr || from.sin_port != to.sin_port) return 3;
    return std::string_view(buf) == "answer" ? 0 : 4;
  });
  ASSERT_TRUE(Readable(net_.dns.get()));
  char buf[16] = {};
  sockaddr_in peer{};
  socklen_t size = sizeof peer;
  ASSERT_EQ(::recvfrom(net_.dns.get(), buf, sizeof buf, 0, reinterpret_cast<sockaddr*>(&peer), &size), 5);
  ASSERT_EQ(::sendto(net_.dns.get(), "answer", 6, 0, reinterpret_cast<sockaddr*>(&peer), size), 6);
  EXPECT_EQ(Wait(child), 0);
}

TEST_F(LocalNet, OtherUdpAndPingFailAtOnce) {
  EXPECT_EQ(Wait(Inside([] {
              Fd udp = Socket(SOCK_DGRAM);
              sockaddr_in to = Address("203.0.113.7", 443);
              if (::sendto(udp.get(), "x", 1, 0, reinterpret_cast<sockaddr*>(&to), sizeof to) == 1) return 1;
              if (errno != EPERM) return 2;
              Fd ping(::socket(AF_INET, SOCK_DGRAM, IPPROTO_ICMP));
              if (!ping) return 3;
              char echo[8] = {8, 0, 0, 0, 0, 0, 0, 1};
              if (::sendto(ping.get(), echo, sizeof echo, 0, reinterpret_cast<sockaddr*>(&to), sizeof to) >= 0)
                return 4;
              if (errno != EPERM) return 5;
              sockaddr_in self = Address("127.0.0.1", 0);
              if (::sendto(ping.get(), echo, sizeof echo, 0, reinterpret_cast<sockaddr*>(&self), sizeof self) != 8)
                return 6;
              timeval limit{10, 0};
              ::setsockopt(ping.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
              return ::recv(ping.get(), echo, sizeof echo, 0) == 8 ? 0 : 7;
            })),
            0);
}

// The process that makes networks holds several descriptors of every machine, and the library that loads rules cannot
// deal with high ones.
TEST_F(LocalNet, IsMadeWithThousandsOfDescriptorsOpen) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit raised{std::max<rlim_t>(before.rlim_cur, 4096), std::max<rlim_t>(before.rlim_max, 4096)};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &raised), 0);
  {
    std::vector<Fd> many;
    while (many.empty() || many.back().get() < 2000) many.emplace_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    struct stat stdin_before{}, stdin_after{};
    const bool had_stdin = ::fstat(0, &stdin_before) == 0;
    auto net = CreateLocalNet();
    ASSERT_TRUE(net) << net.error().message;
    EXPECT_EQ(*DroppedPackets(net->netns.get()), 0U);
    EXPECT_EQ(::fstat(0, &stdin_after) == 0, had_stdin);
    EXPECT_EQ(stdin_after.st_ino, stdin_before.st_ino);
  }
  EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST_F(LocalNet, WhatGoesNowhereIsCounted) {
  EXPECT_EQ(*DroppedPackets(net_.netns.get()), 0U);
  EXPECT_EQ(Wait(Inside([] {
              Fd udp = Socket(SOCK_DGRAM);
              for (uint16_t port = 100; port < 105; ++port) {
                sockaddr_in to = Address("203.0.113.7", port);
                if (::sendto(udp.get(), "x", 1, 0, reinterpret_cast<sockaddr*>(&to), sizeof to) == 1) return 1;
              }
              Fd listener = Socket(SOCK_STREAM);
              return Connect(listener, "127.0.0.1", 1) == ECONNREFUSED ? 0 : 2;
            })),
            0);
  EXPECT_EQ(*DroppedPackets(net_.netns.get()), 6U);
}

TEST_F(LocalNet, GuestCannotBindPortOneButAnyOther) {
  EXPECT_EQ(Wait(Inside([] {
              Fd one = Socket(SOCK_STREAM);
              sockaddr_in a = Address("127.0.0.9", 1);
              if (::bind(one.get(), reinterpret_cast<sockaddr*>(&a), sizeof a) == 0) return 1;
              if (errno != EACCES) return 2;
              a = Address("0.0.0.0", 80);
              return ::bind(one.get(), reinterpret_cast<sockaddr*>(&a), sizeof a) == 0 ? 0 : 3;
            })),
            0);
}

// Otherwise a guest could fill the connection table, which is not charged to it, by talking to itself.
TEST_F(LocalNet, LoopbackConnectionsAreNotTracked) {
  EXPECT_EQ(Wait(Inside([] {
              Fd server = Socket(SOCK_STREAM);
              sockaddr_in a = Address("127.0.0.1", 3000);
              if (::bind(server.get(), reinterpret_cast<sockaddr*>(&a), sizeof a) != 0) return 1;
              if (::listen(server.get(), 8) != 0) return 2;
              Fd client = Socket(SOCK_STREAM);
              if (Connect(client, "127.0.0.1", 3000) != 0) return 3;
              auto tracked = [] {
                Fd f(::open("/proc/sys/net/netfilter/nf_conntrack_count", O_RDONLY | O_CLOEXEC));
                char text[16] = {};
                return f && ::read(f.get(), text, sizeof text - 1) > 0 ? std::atoi(text) : -1;
              };
              if (tracked() != 0) return 4;
              Fd out = Socket(SOCK_STREAM);
              if (Connect(out, "203.0.113.7", 443) != 0) return 5;
              return tracked() == 1 ? 0 : 6;
            })),
            0);
}

TEST_F(LocalNet, DialReachesAServerInside) {
  pid_t child = Inside([] {
    Fd server = Socket(SOCK_STREAM);
    sockaddr_in a = Address("127.0.0.1", 3000);
    int one = 1;
    ::setsockopt(server.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (::bind(server.get(), reinterpret_cast<sockaddr*>(&a), sizeof a) != 0 || ::listen(server.get(), 8) != 0)
      return 1;
    Fd conn(::accept(server.get(), nullptr, nullptr));
    return ::send(conn.get(), "x", 1, 0) == 1 ? 0 : 2;
  });
  bool got = false;
  for (int i = 0; i < 1000 && !got; ++i) {
    auto conn = DialIn(net_.netns.get(), 3000);
    if (!conn) continue;
    pollfd p{conn->get(), POLLIN, 0};
    char c = 0;
    got = ::poll(&p, 1, 10) == 1 && ::recv(conn->get(), &c, 1, 0) == 1;
    if (!got) ::usleep(1000);
  }
  EXPECT_TRUE(got);
  EXPECT_EQ(Wait(child), 0);
  EXPECT_FALSE(DialIn(net_.netns.get(), 1));
  EXPECT_FALSE(DialIn(net_.netns.get(), 0));
}

// Even with every capability of a user namespace of its own, the guest has none over this network.
TEST_F(LocalNet, RulesAndDevicesBelongToTheHost) {
  EXPECT_EQ(Wait(Inside([] {
              if (::unshare(CLONE_NEWUSER) != 0) return 0;
              Fd raw(::socket(AF_INET, SOCK_RAW, IPPROTO_ICMP));
              if (raw) return 1;
              Fd f(::open("/proc/sys/net/ipv4/ip_unprivileged_port_start", O_WRONLY));
              return f && ::write(f.get(), "0", 1) == 1 ? 2 : 0;
            })),
            0);
}

}  // namespace
}  // namespace sandbar::os
